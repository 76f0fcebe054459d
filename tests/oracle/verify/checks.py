"""Checks of a run's folder, from the log to the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verify.comparison import Check, Disagreement, compared
from verify.log import Begun, read_log, steps_before_start
from verify.mixture import digest_of_mixture
from verify.recount import recount
from verify.sample_order import digest_of_positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from verify.evidence import Evidence

FORMAT: dict[str, Any] = {"format": "trainyard-continuity", "version": 1}


def checks(evidence: Evidence) -> Iterator[Check]:
    """Yield every check of a run's folder, from the log to the results."""
    starts = read_log(evidence.rows)
    expected = recount(evidence.jobs, starts)
    yield _after_starts(evidence.rows)
    yield _same_order(starts)
    yield _number_of_samples(evidence, starts)
    yield _positions(starts)
    yield _digests(starts)
    yield _once(expected)
    yield from _document(evidence.continuity, expected, has_starts=bool(starts))
    yield _same_in_report(evidence)


def _after_starts(rows: Sequence[Mapping[str, Any]]) -> Check:
    found = [
        Disagreement(where=f"step lines before any start of stream {stream}", got=count, expected=0)
        for stream, count in steps_before_start(rows).items()
    ]
    claim = "every step line follows a start"
    return Check(claim=claim, seen=f"{len(rows)} lines", disagreements=tuple(found))


def _same_order(starts: Sequence[Begun]) -> Check:
    names = ("seed", "num_samples", "global_batch_size", "max_steps", "mixture")
    found = [
        Disagreement(
            where=f"start at step {each.resumed_at} in {each.stream}, {name}",
            got=each.start.pairs.get(name),
            expected=starts[0].start.pairs.get(name),
        )
        for each in starts
        for name in names
        if each.start.pairs.get(name) != starts[0].start.pairs.get(name)
    ]
    return Check(
        claim="every start has the same order of samples",
        seen=f"{len(starts)} starts",
        disagreements=tuple(found),
    )


def _number_of_samples(evidence: Evidence, starts: Sequence[Begun]) -> Check:
    claim = "the log's number of samples is the shard index's"
    if not starts:
        return Check(claim=claim, seen="no start")
    got = starts[0].start.whole("num_samples")
    if evidence.index is None:
        missing = Disagreement(where="index.json", got="no such file", expected="the shard index")
        return Check(claim=claim, seen="", disagreements=(missing,))
    expected = samples_in(evidence.index, evidence.report["conf"])
    wrong = Disagreement(where="num_samples of the first start", got=got, expected=expected)
    return Check(claim=claim, seen=f"{expected}", disagreements=() if got == expected else (wrong,))


def samples_in(index: Mapping[str, Any], conf: Mapping[str, Any]) -> int:
    """Return the number of samples in the train split: rows of a table, or whole blocks of tokens.

    A block of length L has L + 1 tokens, the last of which is the first of the next block: (tokens - 1) // L. The
    blocks of a mixture do not span its sources.
    """
    shards = index["splits"]["train"]["shards"]
    if index["kind"] == "columns":
        return sum(int(shard["rows"]) for shard in shards)
    tokens: dict[str | None, int] = {}
    for shard in shards:
        source = shard.get("source")
        tokens[source] = tokens.get(source, 0) + int(shard["num_tokens"])
    return sum((each - 1) // int(conf["sequence_length"]) for each in tokens.values())


def _positions(starts: Sequence[Begun]) -> Check:
    """Check that each step line begins at the end of the previous one, and ends at its step."""
    found, count = [], 0
    for start in starts:
        reach = start.resumed_at * start.batch
        for line, first, end in start.claims():
            count += 1
            step = int(line.pairs["step"])
            if (first, end) != (reach, step * start.batch):
                expected = f"{reach}:{step * start.batch}"
                where = f"samples of step {step} in {start.stream}"
                found.append(Disagreement(where=where, got=f"{first}:{end}", expected=expected))
            reach = end
        unclaimed = len(start.of_kind("step")) - sum(1 for _ in start.claims())
        if unclaimed:
            where = f"step lines without samples=first:end in {start.stream}"
            found.append(Disagreement(where=where, got=unclaimed, expected=0))
    return Check(
        claim="the positions of each start follow on one another",
        seen=f"{count} step lines",
        disagreements=tuple(found),
    )


def _digests(starts: Sequence[Begun]) -> Check:
    found, positions = [], 0
    for start in starts:
        num_samples, seed = int(start.start.pairs["num_samples"]), int(start.start.pairs["seed"])
        mixture = start.start.pairs.get("mixture")
        for line, first, end in start.claims():
            positions += end - first
            if mixture is None:
                digest = digest_of_positions(first, end, num_samples=num_samples, seed=seed)
            else:
                digest = digest_of_mixture(first, end, mixture=mixture, seed=seed)
            expected, got = f"{digest:016x}", line.pairs.get("digest")
            if got != expected:
                where = f"digest of step {line.pairs['step']} in {start.stream}"
                found.append(Disagreement(where=where, got=got, expected=expected))
    return Check(
        claim="the loaders delivered the samples of these positions",
        seen=f"digests of {positions} samples",
        disagreements=tuple(found),
    )


def _once(expected: Mapping[str, Any]) -> Check:
    """Check that no position of the surviving lineage is covered twice or skipped."""
    found = [
        Disagreement(where=name, got=expected[name], expected=0)
        for name in ("samples_repeated", "samples_missed")
        if expected[name]
    ]
    seen = f"{expected['samples_seen']} of the final weights"
    if expected["samples_without_line"]:
        seen += f"; {expected['samples_without_line']} more by their checkpoint alone, without line"
    return Check(
        claim="every sample of the lineage was taken once", seen=seen, disagreements=tuple(found)
    )


def _document(
    got: Mapping[str, Any], expected: Mapping[str, Any], *, has_starts: bool
) -> Iterator[Check]:
    """Yield one check for the run's sums, one for each attempt, one for each bill."""
    lists = ("attempts", "bills")
    known = {"why_unknown", *FORMAT, *expected}
    sums = FORMAT | {name: value for name, value in expected.items() if name not in lists}
    findings = [*compared(got, sums)]
    findings += [
        Disagreement(where=name, got=got[name], expected="no such field")
        for name in sorted(got.keys() - known)
    ]
    if (got.get("why_unknown") is None) != has_starts:
        expected_why = "null" if has_starts else "a sentence: the log has no start"
        findings.append(
            Disagreement(where="why_unknown", got=got.get("why_unknown"), expected=expected_why)
        )
    yield Check(
        claim="continuity.json, the run", seen=f"{len(sums)} fields", disagreements=tuple(findings)
    )
    for name in lists:
        yield from _listed(name, got.get(name) or [], expected[name])


def _listed(
    name: str, got: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> Iterator[Check]:
    if len(got) != len(expected):
        wrong = Disagreement(where=f"number of {name}", got=len(got), expected=len(expected))
        yield Check(claim=f"continuity.json, {name}", seen="", disagreements=(wrong,))
    for number, (one, other) in enumerate(zip(got, expected, strict=False), 1):
        extra = tuple(
            Disagreement(where=key, got=one[key], expected="no such field")
            for key in sorted(one.keys() - other.keys())
        )
        yield Check(
            claim=f"continuity.json, {name.removesuffix('s')} {number}",
            seen=f"{len(other)} fields",
            disagreements=(*compared(one, other), *extra),
        )


def _same_in_report(evidence: Evidence) -> Check:
    reported = evidence.report.get("continuity") or {}
    names = sorted(reported.keys() | evidence.continuity.keys())
    found = tuple(
        Disagreement(where=name, got=reported.get(name), expected=evidence.continuity.get(name))
        for name in names
        if reported.get(name) != evidence.continuity.get(name)
    )
    return Check(
        claim="report.json says what continuity.json says",
        seen=f"{len(names)} fields",
        disagreements=found,
    )
