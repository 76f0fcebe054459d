"""Statistics read while they grow give what the finished files give: any cut of bytes, parts, ranks and restarts."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings, strategies as st

from trainyard.errors import ContractError
from trainyard.rules.configuration import configured_rules
from trainyard.rules.evaluation import RuleStatus, evaluate
from trainyard.rules.live import MOST_AT_ONCE, MOST_BYTES, LiveFeed
from trainyard.rules.live_evaluation import LiveEvaluation, planned_evaluation
from trainyard.rules.records import Start, StepRecord
from trainyard.rules.statistics_bundles import upload_pause_s, uploaded_until
from trainyard.rules.statistics_file import read_statistics
from trainyard.rules.watch_plan import WatchPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.rules.evaluation import Issue, Verdict

RULES = configured_rules(
    ["NonFinite", "LossSpike", "NotLearning", "LRSanity", "Straggler", "GradNormSpike"]
)


def header(rank: int, attempt: int, *, step: int = 0, time: float = 0.0, part: int = 1) -> bytes:
    """Return the first line of a file."""
    told = {"format": "trainyard-statistics", "version": 1, "rank": rank, "world_size": 2}
    told |= {"attempt": attempt, "resumed_at": step, "time": time, "tensors": {}}
    return line(told if part == 1 else {**told, "part": part})


def line(told: dict[str, Any]) -> bytes:
    """Return one line of a file."""
    return json.dumps(told).encode() + b"\n"


def name(rank: int, attempt: int, part: int = 1) -> str:
    """Return a file's name."""
    return f"rank-{rank:05d}.attempt-{attempt:04d}.part-{part:04d}.jsonl"


def run_of(seed: int) -> list[dict[str, bytes]]:
    """Return the files of two ranks by their names, attempt by attempt: losses that go wrong here and there."""
    draw = random.Random(seed)  # noqa: S311  # a series, not a secret
    attempts, step, now = [], 0, 1000.0
    for attempt in range(1, draw.randint(1, 3) + 1):
        first, last = max(0, step - draw.randint(0, 9)), step + draw.randint(25, 60)
        per_part = draw.randint(15, 60)
        files: dict[str, bytes] = {}
        for at in range(first + 1, last + 1):
            now += 1
            part = 1 + (at - first - 1) // per_part
            loss: Any = draw.choice([1.0] * 30 + [9.0, "nan"])
            for rank in (0, 1):
                told = {"kind": "step", "step": at, "time": now + rank / 10, "loss": loss}
                told |= {"learning_rate": 1e-3, "step_seconds": 0.4}
                told["local_seconds"] = 0.1 + 0.2 * rank * (seed % 2)
                file = name(rank, attempt, part)
                begin = header(rank, attempt, step=first, time=now, part=part)
                files[file] = files.get(file, begin) + line(told)
        attempts.append(files)
        step = last
    return attempts


def looks_at(attempts: list[dict[str, bytes]], seed: int) -> Iterator[dict[str, bytes]]:
    """Yield what a reader finds at each look: files that grow by any number of bytes, ranks as they like."""
    draw = random.Random(seed)  # noqa: S311
    there: dict[str, bytes] = {}
    for files in attempts:
        by_rank = [
            sorted(each for each in files if each.startswith(f"rank-0000{r}")) for r in (0, 1)
        ]
        while any(by_rank):
            names = draw.choice([each for each in by_rank if each])
            file = names[0]
            size = len(there.get(file, b"")) + draw.choice([1, 40, 200, 1500])
            there[file] = files[file][:size]
            if there[file] == files[file]:
                names.pop(0)
            if draw.random() < 0.5:
                yield dict(there)
    yield there


def found_live(looks: Iterator[dict[str, bytes]], live: LiveEvaluation) -> list[tuple[str, Issue]]:
    """Return the issues in the order in which a reader of these looks is told of them."""
    issues, there = [], {}
    for there in looks:
        issues += look(there, live)
    return issues + look(there, live, is_final=True)


def look(
    there: dict[str, bytes], live: LiveEvaluation, *, is_final: bool = False
) -> list[tuple[str, Issue]]:
    """Look once at files, and return the issues that this brought."""
    sizes = {file: len(content) for file, content in there.items()}
    for piece in live.wanted(sizes, is_final=is_final):
        live.take(piece, there[piece.name][piece.start : piece.end])
    return live.judge()


def timeless(verdicts: tuple[Verdict, ...]) -> list[Verdict]:
    """Return verdicts without the time at which the last rank's record of a step came: that is the cut's."""
    return [
        replace(each, issues=tuple(replace(issue, time=None) for issue in each.issues))
        for each in verdicts
    ]


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), cut=st.integers(0, 10**6))
@example(seed=29272, cut=940)  # redone steps, of which rank 1's come first
def test_any_cut_gives_the_verdicts_of_the_whole(seed: int, cut: int) -> None:
    attempts = run_of(seed)
    whole = {
        file: list(io.StringIO(content.decode(), newline="\n"))
        for files in attempts
        for file, content in files.items()
        if ".part-0001." in file
    }
    for files in attempts:  # the rest of the parts, without their headers
        for file in sorted(files):
            stem, _, part = file.rpartition(".part-")
            if part != "0001.jsonl":
                lines = list(io.StringIO(files[file].decode(), newline="\n"))
                whole[f"{stem}.part-0001.jsonl"] += lines[1:]
    live = LiveEvaluation(RULES)

    issues = found_live(looks_at(attempts, cut), live)

    offline = evaluate(RULES, read_statistics(whole))
    assert timeless(live.verdicts(is_final=True)) == timeless(offline)
    assert len(issues) == sum(each.num_issues for each in offline)


def attempt_of(number: int, *, begin: int, end: int, loss: float, time: float) -> dict[str, bytes]:
    """Return the file of one attempt: steps `begin + 1` to `end` with this loss."""
    steps = [
        line({"kind": "step", "step": step, "time": time + step, "loss": loss})
        for step in range(begin + 1, end + 1)
    ]
    return {name(0, number): header(0, number, step=begin, time=time) + b"".join(steps)}


def test_earlier_jobs_are_history_and_their_issues_not_this_ones() -> None:
    there = attempt_of(1, begin=0, end=100, loss=2.0, time=500.0)
    spiked = attempt_of(2, begin=60, end=100, loss=9.0, time=1000.0)
    before = LiveEvaluation(RULES, since=0.0)
    healthy = LiveEvaluation(RULES, since=2000.0)
    judging = LiveEvaluation(RULES, since=900.0)

    # The window of the first job's losses is what the second job's first ones are compared with.
    assert [
        (rule, issue.step) for rule, issue in found_live(iter([{**there, **spiked}]), judging)
    ] == [("LossSpike", 63)]
    assert judging.num_records == 41
    assert [issue.step for _, issue in found_live(iter([{**there, **spiked}]), before)] == [63]
    calm = attempt_of(3, begin=60, end=90, loss=2.0, time=2500.0)
    assert found_live(iter([{**there, **spiked, **calm}]), healthy) == []
    assert all(not each.issues for each in healthy.verdicts(is_final=True))


def test_what_is_still_wrong_in_the_next_job_is_its_issue_too() -> None:
    there = attempt_of(1, begin=0, end=100, loss=2.0, time=500.0)
    there |= attempt_of(2, begin=100, end=120, loss=9.0, time=900.0)
    there |= attempt_of(3, begin=120, end=130, loss=9.0, time=2500.0)

    found = found_live(iter([there]), LiveEvaluation(RULES, since=2000.0))

    assert [(rule, issue.step, issue.onset) for rule, issue in found] == [("LossSpike", 121, 103)]


def test_a_run_resumed_late_is_not_told_that_it_learned_nothing() -> None:
    """4,000 steps, a rank killed late: what is left of the loss to learn is nothing, and that is no fault."""

    def loss(step: int) -> float:
        return 0.5 + 3.0 * (1 + step / 30) ** -0.7

    def attempt(number: int, begin: int, end: int, time: float) -> dict[str, bytes]:
        told = [
            line(
                {
                    "kind": "step",
                    "step": at,
                    "time": time + at - begin,
                    "loss": loss(at),
                    "learning_rate": 1e-3,
                }
            )
            for at in range(begin + 1, end + 1)
        ]
        return {name(0, number): header(0, number, step=begin, time=time) + b"".join(told)}

    first, second = attempt(1, 0, 3520, 0.0), attempt(2, 3500, 4000, 9000.0)
    knowing = LiveEvaluation(configured_rules([]), since=8000.0)
    unknowing = LiveEvaluation(configured_rules([]), since=8000.0)

    assert found_live(iter([{**first, **second}]), knowing) == []
    assert found_live(iter([second]), unknowing) == []
    verdicts = {each.name: each for each in knowing.verdicts(is_final=True)}
    assert verdicts["NotLearning"].num_judged > 0
    verdicts = {each.name: each for each in unknowing.verdicts(is_final=True)}
    assert "they begin after step 3500" in str(verdicts["NotLearning"].not_evaluated)


def test_a_wrong_line_of_an_earlier_job_is_no_fault_of_this_one() -> None:
    there = {name(0, 1): header(0, 1, time=500.0) + b"{}\n"}
    there |= attempt_of(2, begin=0, end=10, loss=2.0, time=1000.0)
    live = LiveEvaluation(RULES, since=900.0)

    assert found_live(iter([there]), live) == []
    assert live.num_records == 11


def test_names_that_begin_anew_on_empty_disks_are_another_attempt() -> None:
    first = header(0, 1, time=1.0) + line({"kind": "step", "step": 1, "time": 2.0, "loss": 1.0})
    second = header(0, 1, step=1, time=50.0) + line({"kind": "step", "step": 2, "time": 51.0})
    feed = LiveFeed()

    records = []
    for content in (first, None, second):
        there = {} if content is None else {name(0, 1): content}
        for piece in feed.wanted({file: len(each) for file, each in there.items()}):
            feed.take(piece, there[piece.name][piece.start : piece.end])
        records += feed.records()

    starts = [each for each in records if isinstance(each, Start)]
    assert [(each.attempt, each.step) for each in starts] == [(1, 0), (2, 1)]
    assert [each.step for each in records if isinstance(each, StepRecord)] == [1, 2]


def test_restored_copy_that_lacks_the_last_lines_is_no_new_start() -> None:
    lines = [line({"kind": "step", "step": n, "time": float(n), "loss": 1.0}) for n in (1, 2)]
    whole = header(0, 1, time=0.5) + b"".join(lines)
    short = whole[: -len(lines[1])]
    feed = LiveFeed()

    records = []
    for content in (whole, None, short, short):
        there = {} if content is None else {name(0, 1): content}
        pieces = feed.wanted({file: len(each) for file, each in there.items()})
        for piece in pieces:
            feed.take(piece, there[piece.name][piece.start : piece.end])
        records += feed.records()

    assert len(records) == 3
    assert pieces == []  # and it is not read again and again


def test_other_files_are_not_looked_at() -> None:
    feed = LiveFeed()
    assert feed.wanted({"events/000/0_worker_0.tfevents": 9, "rank-00000.json": 9}) == []


def test_a_long_file_is_read_in_pieces() -> None:
    feed = LiveFeed()
    (piece,) = feed.wanted({name(0, 1): 3 * MOST_BYTES})
    assert (piece.start, piece.end) == (0, MOST_BYTES)
    assert feed.is_behind


def parts_of(rank: int, attempt: int, count: int) -> dict[str, bytes]:
    """Return the files of a rank that wrote two steps into each of so many parts."""
    files = {}
    for part in range(1, count + 1):
        steps = (2 * part - 1, 2 * part)
        lines = [line({"kind": "step", "step": n, "time": float(n), "loss": 1.0}) for n in steps]
        begin = header(rank, attempt, time=0.5, part=part)
        files[name(rank, attempt, part)] = begin + b"".join(lines)
    return files


def steps_of_look(feed: LiveFeed, there: dict[str, bytes], *, is_final: bool = False) -> list[int]:
    """Look once, as often as the feed is behind, and return the steps that this brought."""
    sizes, steps = {file: len(content) for file, content in there.items()}, []
    while True:
        for piece in feed.wanted(sizes, is_final=is_final):
            feed.take(piece, there[piece.name][piece.start : piece.end])
        steps += [each.step for each in feed.records() if isinstance(each, StepRecord)]
        if not feed.is_behind:
            return steps


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("most", [MOST_BYTES, 500])
def test_a_reader_many_parts_behind_catches_up_in_one_look(
    monkeypatch: pytest.MonkeyPatch, most: int, is_final: bool
) -> None:
    monkeypatch.setattr("trainyard.rules.live.MOST_BYTES", most)
    there = parts_of(0, 1, 40)
    feed = LiveFeed()

    first = steps_of_look(feed, there, is_final=is_final)

    # The last part may be begun once the one before it stood still, which no single look can say.
    assert first == list(range(1, 81 if is_final else 79))
    assert first + steps_of_look(feed, there) == list(range(1, 81))


def test_what_is_wanted_at_once_is_bounded_over_all_parts_and_ranks() -> None:
    feed = LiveFeed()
    sizes = {name(rank, 1, part): MOST_BYTES // 4 for rank in range(64) for part in range(1, 9)}

    pieces = feed.wanted(sizes, is_final=True)

    assert sum(each.end - each.start for each in pieces) == MOST_AT_ONCE
    assert {each.name[:10] for each in pieces} == {f"rank-{rank:05d}" for rank in range(64)}
    assert feed.is_behind


def test_a_part_that_was_left_is_small_and_goes_on_where_it_ended() -> None:
    there = parts_of(0, 1, 4)
    more = line({"kind": "step", "step": 3, "time": 3.5, "loss": 2.0})
    late = {**there, name(0, 1, 2): there[name(0, 1, 2)] + more}
    feed = LiveFeed()
    read = [steps_of_look(feed, there) for _ in range(3)]

    files = feed._streams[1, 0].files
    assert read == [[1, 2, 3, 4, 5, 6], [7, 8], []]
    assert [files[part].reader is None for part in (1, 2, 3, 4)] == [True, True, True, False]
    assert steps_of_look(feed, late) == [3]
    assert steps_of_look(feed, late) == []
    assert [files[part].reader is None for part in (1, 2, 3, 4)] == [True, True, True, False]
    wrong = {**late, name(0, 1, 3): late[name(0, 1, 3)] + b"{}\n"}
    with pytest.raises(ContractError, match=rf"part-0003.jsonl, after byte {files[3].offset}"):
        steps_of_look(feed, wrong)


def test_part_that_is_missing_is_waited_for_while_later_ones_grow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = parts_of(0, 1, 4)
    without = {file: data for file, data in whole.items() if file != name(0, 1, 2)}
    half = len(whole[name(0, 1, 4)]) // 2
    feed = LiveFeed()

    assert steps_of_look(feed, {name(0, 1, 1): whole[name(0, 1, 1)]}) == [1, 2]
    assert steps_of_look(feed, {**without, name(0, 1, 4): whole[name(0, 1, 4)][:half]}) == []
    assert steps_of_look(feed, without) == []
    assert caplog.messages == []
    assert steps_of_look(feed, without) == [5, 6, 7, 8]
    assert [each.split(":")[0] for each in caplog.messages] == [
        f"Statistics of rank 0 continue with {name(0, 1, 3)}"
    ]
    assert steps_of_look(feed, whole) == []  # it comes too late


def test_parts_that_are_missing_at_the_end_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = parts_of(0, 1, 6)
    there = {name(0, 1, part): whole[name(0, 1, part)] for part in (2, 3, 6)}
    feed = LiveFeed()

    assert steps_of_look(feed, there) == []
    assert steps_of_look(feed, there, is_final=True) == [3, 4, 5, 6, 11, 12]
    assert len(caplog.messages) == 2
    assert steps_of_look(feed, there, is_final=True) == []
    assert len(caplog.messages) == 2


def test_an_attempt_is_begun_once_nothing_of_an_earlier_one_waits() -> None:
    feed = LiveFeed()
    again = header(0, 2, step=6, time=50.0) + line({"kind": "step", "step": 7, "time": 51.0})
    there = {**parts_of(0, 1, 3), name(0, 2): again}

    assert steps_of_look(feed, there) == [1, 2, 3, 4]
    assert steps_of_look(feed, there) == [5, 6, 7]


def test_silence_is_not_judged_while_there_is_more_to_read() -> None:
    there = parts_of(0, 1, 2)
    live = LiveEvaluation(configured_rules(["Stalled"]))

    look(there, live)
    live.judge(until=10_000.0, trains_since=0.0)
    waiting = live.verdicts(is_final=False)[0].status
    look(there, live)
    live.judge(until=10_000.0, trains_since=0.0)

    assert waiting is RuleStatus.IN_PROGRESS
    assert live.verdicts(is_final=False)[0].status is RuleStatus.ISSUES_FOUND


def test_wrong_line_is_an_error() -> None:
    feed = LiveFeed()
    content = header(0, 1) + b'{"kind": "stepp", "step": 1}\n'
    (piece,) = feed.wanted({name(0, 1): len(content)})
    with pytest.raises(ContractError, match="stepp"):
        feed.take(piece, content)


def test_silence_is_judged_by_the_clock_only_of_ranks_that_began_since_the_instances_did() -> None:
    content = header(0, 1, time=100.0) + b"".join(
        line({"kind": "step", "step": n, "time": 100.0 + n, "loss": 1.0}) for n in range(1, 9)
    )
    rules = configured_rules(["Stalled"])

    def verdict(trains_since: float | None) -> RuleStatus:
        live = LiveEvaluation(rules)
        look({name(0, 1): content}, live)
        live.judge(until=1000.0, trains_since=trains_since)
        return live.verdicts(is_final=False)[0].status

    assert verdict(90.0) is RuleStatus.ISSUES_FOUND
    assert verdict(500.0) is RuleStatus.IN_PROGRESS  # new instances that have not written yet
    assert verdict(None) is RuleStatus.IN_PROGRESS  # none at all: it waits for capacity


def test_uploads_once_a_minute_are_no_hang_and_a_hang_is_found_within_three_minutes() -> None:
    """Steps of 1 s; polls every 15 s meet each upload, every 60.25 s, at another time."""
    ends, latency_s = 7200.0, 2.0
    lines = [
        line({"kind": "step", "step": n, "time": float(n), "loss": 1.0}) for n in range(3600, 7201)
    ]
    content, sizes = header(0, 1, step=3599, time=3599.5), {}
    for number, each in enumerate(lines, 3600):
        content += each
        sizes[number] = len(content)
    live = LiveEvaluation(configured_rules(["Stalled"]))

    def poll(now: float) -> list[tuple[str, Issue]]:
        uploaded = 3600 + (now - latency_s - 3600) // 60.25 * 60.25
        there = {name(0, 1): content[: sizes[min(7200, int(uploaded))]]}
        for piece in live.wanted({file: len(each) for file, each in there.items()}):
            live.take(piece, there[piece.name][piece.start : piece.end])
        return live.judge(until=uploaded_until(now, trains_since=0.0), trains_since=0.0)

    polls = [3605.0 + 15 * n for n in range(1000)]
    found = {now: issues for now in polls if (issues := poll(now))}

    assert upload_pause_s(3600) + 0.25 == 60.25
    assert ends + 60 < min(found) <= ends + 180


@pytest.mark.parametrize(("sent", "is_right"), [("0.0003", True), ("0.001", False), (None, True)])
def test_declared_learning_rate_is_that_of_the_watched_job(
    sent: str | None, *, is_right: bool
) -> None:
    conf = {"model": "mlp", "learning_rate": 0.001, "warmup_steps": 0, "max_steps": 20}
    conf |= {"min_learning_rate_ratio": 1.0, "on_rule_stop": {"factor": 0.3}}
    hyperparameters = {} if sent is None else {"learning_rate": sent, "mode": "fast"}
    live = planned_evaluation(WatchPlan(conf=conf), since=0.0, hyperparameters=hyperparameters)
    told = [{"kind": "step", "step": n, "time": n, "loss": 5 / n} for n in range(1, 21)]
    data = header(0, 1) + b"".join(line({**each, "learning_rate": 0.0003}) for each in told)

    (piece,) = live.wanted({name(0, 1): len(data)}, is_final=True)
    live.take(piece, data)
    found = live.judge()

    blamed = {issue.step for rule, issue in found if rule == "LRSanity"}
    assert blamed == (set() if is_right else {1})


@pytest.mark.parametrize(
    ("sent", "is_certain"),
    [
        ({"sagemaker_program": "train_ddp.py", "model": "gpt"}, True),
        ({"sagemaker_program": "train_ddp.py", "model": "gpt", "on_non_finite": "skip"}, False),
        ({"sagemaker_program": "train_ddp.py", "model": "gpt", "precision": "fp16"}, False),
        ({"sagemaker_program": "train_ddp.py"}, False),
        ({"sagemaker_program": "own.py", "model": "gpt"}, False),
    ],
    ids=["ours", "ours that skips", "ours with a loss scaler", "of the same name", "a user's"],
)
def test_one_nan_is_certain_only_in_a_script_of_trainyard_that_skips_none(
    sent: dict[str, str], *, is_certain: bool
) -> None:
    hyperparameters = {key: json.dumps(value) for key, value in sent.items()}
    live = planned_evaluation(WatchPlan(), since=0.0, hyperparameters=hyperparameters)
    data = header(0, 1) + line({"kind": "step", "step": 1, "time": 1, "loss": "nan"})

    (piece,) = live.wanted({name(0, 1): len(data)}, is_final=True)
    live.take(piece, data)

    assert ("NonFinite" in {rule for rule, _ in live.judge()}) is is_certain
