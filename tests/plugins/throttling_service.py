"""SageMaker and CloudWatch Logs of jobs that only end: a far end of its own process that throttles each operation.

    python tests/plugins/throttling_service.py [--rate 10] [--lines-per-s 1] [--unreliable 0]

Prints its port. `POST /start` with `{"num_jobs", "run_s", "spread_s"}` creates the jobs `job-<n>`, which all end within
`spread_s` after `run_s`, and answers with the time at which they began. Optional members:

- `age_s`: seconds ago at which the jobs were created.
- `lines_s`: seconds after their creation in which the jobs print lines, by default until their end.
- `num_others`: the account's other jobs, which were created during the last day and have ended.
- `faults`: `{operation: [code, number of calls]}`; these first calls of an operation get the error `code`.

`GET /calls` returns the number of calls of each operation, and of the throttled calls. AWS publishes no limits for
these operations: `--rate` calls a second of each, and as many at once after a rest, are an assumption. `--unreliable`
is the share of a list's entries and of a log's events that an answer leaves out, and as many again that it has twice,
all in any order; the job or line that is left out is in a later answer. AWS promises neither whole lists nor an order
right after a change.
"""

# ruff: noqa: N802, T201  # operations as AWS names them; the port is told by print

from __future__ import annotations

import argparse
import collections
import json
import math
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
        self.lines_s = math.inf
        self.others: list[dict[str, Any]] = []
        self.stopped: dict[int, float] = {}
        self.faults: dict[str, tuple[str, int]] = {}

    async def start(self, request: web.Request) -> web.Response:
        """Create jobs in place of those that there were."""
        asked = await request.json()
        now = time.time()
        self.began, self.num_jobs = now - asked.get("age_s", 0.0), asked["num_jobs"]
        self.run_s, self.spread_s = now - self.began + asked["run_s"], asked["spread_s"]
        self.lines_s = asked.get("lines_s", math.inf)
        num_others = asked.get("num_others", 0)
        self.others = [_other(each, now - 86_400 * each / num_others) for each in range(num_others)]
        self.faults = {name: (code, most) for name, (code, most) in asked.get("faults", {}).items()}
        self.stopped.clear()
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
        code, most = self.faults.get(operation, ("", 0))
        if self.calls[operation] <= most:
            return web.json_response({"__type": code, "message": "not now"}, status=400)
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
        ends_at = self.began + self.run_s + self.spread_s * number / max(1, self.num_jobs)
        return self.stopped.get(number, ends_at)

    def _summary(self, number: int, now: float) -> dict[str, Any]:
        ended = now >= self.ends_at(number)
        name = f"job-{number}"
        status = "Stopped" if number in self.stopped else "Completed" if ended else "InProgress"
        return {
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:111122223333:training-job/{name}",
            "CreationTime": self.began,
            "LastModifiedTime": self.ends_at(number) if ended else self.began + 1,
            "TrainingJobStatus": status,
            "SecondaryStatus": status if ended else "Training",
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
        """Answer ListTrainingJobs, by creation; as documented, StatusEquals filters a page that was selected before."""
        found = [
            each
            for each in (*(self._summary(each, now) for each in range(self.num_jobs)), *self.others)
            if each["LastModifiedTime"] >= body.get("LastModifiedTimeAfter", 0.0)
            and each["CreationTime"] >= body.get("CreationTimeAfter", 0.0)
        ]
        is_descending = body.get("SortOrder", "Descending") == "Descending"
        found.sort(key=lambda each: float(each["CreationTime"]), reverse=is_descending)
        first, most = int(body.get("NextToken") or 0), body.get("MaxResults", 10)
        more = {"NextToken": str(first + most)} if first + most < len(found) else {}
        status = body.get("StatusEquals")
        page = [
            each
            for each in found[first : first + most]
            if status in {None, each["TrainingJobStatus"]}
        ]
        return {"TrainingJobSummaries": self._mangled(page), **more}

    def _mangled(self, entries: list[Any]) -> list[Any]:
        """Return the entries with some left out, some twice, and out of order, if the service is unreliable."""
        if not self.unreliable:
            return entries
        kept = [each for each in entries if self.draws.random() >= self.unreliable]
        doubled = [each for each in kept if self.draws.random() < self.unreliable]
        return self.draws.sample(kept + doubled, len(kept) + len(doubled))

    def on_StopTrainingJob(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Answer StopTrainingJob."""
        self.stopped[int(body["TrainingJobName"].rpartition("-")[2])] = now
        return {}

    def on_AddTags(self, _body: dict[str, Any], _now: float) -> dict[str, Any]:
        """Answer AddTags."""
        return {"Tags": []}

    def on_DescribeLogStreams(self, body: dict[str, Any], _now: float) -> dict[str, Any]:
        """Answer DescribeLogStreams."""
        return {"logStreams": [{"logStreamName": f"{body['logStreamNamePrefix']}algo-1-1"}]}

    def _lines(self, number: int, now: float) -> int:
        age_s = min(now, self.ends_at(number)) - self.began
        return int(min(age_s, self.lines_s) * self.lines_per_s)

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


def _other(number: int, created_at: float) -> dict[str, Any]:
    """Return the summary of an ended job that nobody follows."""
    name = f"other-{number}"
    return {
        "TrainingJobName": name,
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:111122223333:training-job/{name}",
        "CreationTime": created_at,
        "LastModifiedTime": created_at + 1,
        "TrainingJobStatus": "Completed",
    }


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
