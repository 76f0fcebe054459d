"""SageMaker and CloudWatch Logs of jobs that only end: a far end of its own process that throttles each operation.

    python tests/plugins/throttling_service.py [--rate 10] [--lines-per-s 1] [--unreliable 0]

Prints its port. `POST /start` with `{"num_jobs", "run_s", "spread_s"}` creates the jobs `job-<n>`, which all end within
`spread_s` after `run_s`, and answers with the time at which they began; `GET /calls` tells how often each operation was
asked, and how many of the calls were throttled. AWS publishes no limits for these operations: `--rate` calls a second
of each, and as many at once after a rest, are an assumption. `--unreliable` is the share of a list's entries and of a
log's events that an answer leaves out, and as many again that it has twice, all in any order; the job or line that is
left out is in a later answer. AWS promises neither whole lists nor an order right after a change.
"""

# ruff: noqa: N802, T201  # operations as AWS names them; the port is told by print

from __future__ import annotations

import argparse
import collections
import json
import random
import time
from typing import Any

from aiohttp import web


class Service:
    """Jobs that begin together, and a bucket of calls for each operation."""

    def __init__(self, rate: float, *, lines_per_s: float = 1.0, unreliable: float = 0.0) -> None:
        self.rate, self.lines_per_s, self.unreliable = rate, lines_per_s, unreliable
        self.draws = random.Random(0)  # noqa: S311  # not for secrets
        self.calls: collections.Counter[str] = collections.Counter()
        self.left: dict[str, tuple[float, float]] = {}
        self.began, self.num_jobs, self.run_s, self.spread_s = 0.0, 0, 0.0, 0.0

    async def start(self, request: web.Request) -> web.Response:
        """Create jobs in place of those that there were."""
        asked = await request.json()
        self.began, self.num_jobs = time.time(), asked["num_jobs"]
        self.run_s, self.spread_s = asked["run_s"], asked["spread_s"]
        self.calls.clear()
        return web.json_response({"began": self.began})

    async def tell(self, _: web.Request) -> web.Response:
        """Tell the calls so far."""
        return web.json_response(self.calls)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a call of AWS's JSON protocol."""
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        self.calls[operation] += 1
        if not self._is_allowed(operation):
            self.calls["throttled"] += 1
            refusal = {"__type": "ThrottlingException", "message": "Rate exceeded"}
            return web.json_response(refusal, status=400)
        body = await request.json()
        answer: Any = getattr(self, f"on_{operation}")(body, time.time())
        return web.Response(
            body=json.dumps(answer).encode(), content_type="application/x-amz-json-1.1"
        )

    def _is_allowed(self, operation: str) -> bool:
        now = time.monotonic()
        left, at = self.left.get(operation, (self.rate, now))
        left = min(self.rate, left + (now - at) * self.rate)
        self.left[operation] = (left - 1 if left >= 1 else left), now
        return left >= 1

    def ends_at(self, number: int) -> float:
        """Return when a job ends, epoch seconds."""
        return self.began + self.run_s + self.spread_s * number / max(1, self.num_jobs)

    def _summary(self, number: int, now: float) -> dict[str, Any]:
        ended = now >= self.ends_at(number)
        name = f"job-{number}"
        return {
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:111122223333:training-job/{name}",
            "CreationTime": self.began,
            "LastModifiedTime": self.ends_at(number) if ended else self.began + 1,
            "TrainingJobStatus": "Completed" if ended else "InProgress",
            "SecondaryStatus": "Completed" if ended else "Training",
        }

    def on_DescribeTrainingJob(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Answer DescribeTrainingJob."""
        number = int(body["TrainingJobName"].rpartition("-")[2])
        begun = {"Status": "Training", "StartTime": self.began + 1, "StatusMessage": "Training"}
        return {
            **self._summary(number, now),
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
            "SecondaryStatusTransitions": [begun],
            "HyperParameters": {f"parameter_{each}": "value" for each in range(20)},
        }

    def on_ListTrainingJobs(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Answer ListTrainingJobs."""
        after, status = body.get("LastModifiedTimeAfter", 0.0), body.get("StatusEquals")
        found = [self._summary(each, now) for each in range(self.num_jobs)]
        found = [
            each
            for each in found
            if each["LastModifiedTime"] >= after and status in {None, each["TrainingJobStatus"]}
        ]
        first, most = int(body.get("NextToken") or 0), body.get("MaxResults", 10)
        more = {"NextToken": str(first + most)} if first + most < len(found) else {}
        return {"TrainingJobSummaries": self._mangled(found[first : first + most]), **more}

    def _mangled(self, entries: list[Any]) -> list[Any]:
        """Return the entries with some left out, some twice, and out of order, if the service is unreliable."""
        if not self.unreliable:
            return entries
        kept = [each for each in entries if self.draws.random() >= self.unreliable]
        doubled = [each for each in kept if self.draws.random() < self.unreliable]
        return self.draws.sample(kept + doubled, len(kept) + len(doubled))

    def on_AddTags(self, _body: dict[str, Any], _now: float) -> dict[str, Any]:
        """Answer AddTags."""
        return {"Tags": []}

    def on_DescribeLogStreams(self, body: dict[str, Any], _now: float) -> dict[str, Any]:
        """Answer DescribeLogStreams."""
        return {"logStreams": [{"logStreamName": f"{body['logStreamNamePrefix']}algo-1-1"}]}

    def _lines(self, number: int, now: float) -> int:
        return int((min(now, self.ends_at(number)) - self.began) * self.lines_per_s)

    def _line(self, number: int, line: int) -> dict[str, Any]:
        return {
            "logStreamName": f"job-{number}/algo-1-1",
            "timestamp": int((self.began + line / self.lines_per_s) * 1000),
            "ingestionTime": int((self.began + line / self.lines_per_s) * 1000),
            "message": f"trainyard step={line} loss=0.5",
            "eventId": f"{number}.{line}",
        }

    def on_GetLogEvents(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Answer GetLogEvents."""
        number = int(body["logStreamName"].partition("/")[0].rpartition("-")[2])
        first, lines = int(body.get("nextToken") or 0), self._lines(number, now)
        events = [self._line(number, each) for each in range(first, lines)]
        return {"events": events, "nextForwardToken": str(max(first, lines))}

    def on_FilterLogEvents(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Answer FilterLogEvents."""
        oldest = max(0, int((body.get("startTime", 0) / 1000 - self.began) * self.lines_per_s))
        events = [
            self._line(number, line)
            for number in range(self.num_jobs)
            for line in range(oldest, self._lines(number, now))
        ]
        first, most = int(body.get("nextToken") or 0), body.get("limit", 10_000)
        more = {"nextToken": str(first + most)} if first + most < len(events) else {}
        return {"events": self._mangled(events[first : first + most]), **more}


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--lines-per-s", type=float, default=1.0)
    parser.add_argument("--unreliable", type=float, default=0.0)
    options = parser.parse_args()
    service = Service(options.rate, lines_per_s=options.lines_per_s, unreliable=options.unreliable)
    app = web.Application()
    app.router.add_post("/start", service.start)
    app.router.add_get("/calls", service.tell)
    app.router.add_post("/{any:.*}", service.answer)
    # aiohttp prints `(Press CTRL+C to quit)`, too: the first line is ours.
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
