"""Survey of fine-tuning data, read once in bounded memory: formats, duplicates, lengths and bad rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from trainyard.errors import Finding, SpecError
from trainyard.sharding.answer_rows import KEYS, conversations_of, faults_of, format_of, texts_of
from trainyard.sharding.row_rules import (
    THINKING,
    key_faults,
    losses_of,
    parse_row,
    tools_of,
    unused_keys,
    with_call_arguments,
)
from trainyard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.sharding.chat_template import ChatTemplate
    from trainyard.sharding.objects import ObjectHead, Objects
    from trainyard.sharding.row_rules import Loss

SUFFIX = ".jsonl"
MAX_ROW_BYTES = 16 * 1024**2
MAX_READ_BYTES = 2 * 1024**3
"""Most bytes to read per prefix. The number of rows in the rest is estimated from its size."""
MAX_RENDERED = 100_000
"""Number of conversations per prefix that are rendered. The job renders all of them before its first step."""
MAX_FINDINGS = 20
MAX_DIGESTS = 2_000_000
"""Number of rows whose digests are kept to find duplicates: 8 bytes each, about 200 MB of memory in total."""
BYTES_PER_TOKEN = 4.0
"""UTF-8 bytes per token. English text has 3.5 to 4.5 with a byte-level BPE of 32,000 to 128,000 entries."""
_BUCKETS = tuple(2**power for power in range(25))


_NO_TEMPLATE = (
    "a conversation, but the base model's tokenizer has no chat template",
    "add chat_template.jinja to the base model, or use rows with prompt and completion as texts",
)


@dataclass(slots=True, kw_only=True)
class AnswerSurvey:
    """Statistics of the rows below one prefix.

    Attributes:
        uri: the prefix.
        method: `sft` or `dpo`.
        template: chat template of the base model; None = unknown, so that conversations are not rendered.
        max_read_bytes: most bytes to read from the prefix.
        num_rows, num_duplicates, num_bad: counts of the rows that were read.
        read_bytes, all_bytes: bytes read, and size of all files; they differ if the prefix exceeds `max_read_bytes`.
        text_bytes: UTF-8 bytes of the rows' texts.
        findings: the first faults of bad rows, at most `MAX_FINDINGS`.
        losses: (number of rows, first row) for each part that the chat template leaves out or rejects.
        unused: number of rows for each key or part that the training ignores.
    """

    uri: str
    method: str
    template: ChatTemplate | None = None
    max_read_bytes: int = MAX_READ_BYTES
    num_files: int = 0
    num_rows: int = 0
    num_duplicates: int = 0
    num_bad: int = 0
    read_bytes: int = 0
    all_bytes: int = 0
    text_bytes: int = 0
    longest_bytes: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    losses: dict[Loss, tuple[int, str]] = field(default_factory=dict)
    unused: Counter[str] = field(default_factory=Counter)
    num_rendered: int = 0
    _sizes: Counter[int] = field(default_factory=Counter)
    _digests: set[bytes] = field(default_factory=set)

    def read(self, objects: Objects) -> None:
        """Read the `*.jsonl` below the prefix, up to `max_read_bytes`.

        Raises:
            SpecError: there are no rows, or a row has `MAX_ROW_BYTES` or more.
        """
        for head in objects.list(self.uri):
            if not head.uri.endswith(SUFFIX):
                continue
            self.num_files += 1
            self.all_bytes += head.size
            if self.read_bytes < self.max_read_bytes:
                self._read_file(objects, head)
        if not self.num_rows:
            what = "has no rows" if self.num_files else f"has no *{SUFFIX} file"
            step = f"name a prefix with *{SUFFIX} files that have one JSON object per line"
            raise SpecError(Finding(where=self.uri, what=what, next_step=step), subject="data")

    def _read_file(self, objects: Objects, head: ObjectHead) -> None:
        name = head.uri.removeprefix(self.uri).lstrip("/") or head.uri.rpartition("/")[2]
        with objects.open(head.uri, etag=head.etag) as stream:
            number = 0
            while line := stream.readline(MAX_ROW_BYTES):
                number += 1
                if len(line) == MAX_ROW_BYTES:
                    raise SpecError(_too_long(name, number), subject="data")
                self.read_bytes += len(line)
                if line.strip():
                    self.add(line, where=f"{name} row {number}")
                if self.read_bytes >= self.max_read_bytes:
                    return

    def add(self, line: bytes, *, where: str) -> None:
        """Check one row and add it to the counts. Findings name the row by its file and number."""
        self.num_rows += 1
        try:
            row = parse_row(line)
            faults = list(faults_of(row, method=self.method)) or list(key_faults(row))
        except ValueError as error:
            row, faults = None, [str(error)]
        if faults:
            self.num_bad += 1
            found = (Finding(where=where, what=each) for each in faults)
            self.findings += list(found)[: max(0, MAX_FINDINGS - len(self.findings))]
            return
        losses = self._losses(row)
        self.unused.update(what for what, remedy in losses if not remedy)
        if errors := [each for each in losses if each[1]]:
            self.num_bad += 1
            for each in errors:
                count, first = self.losses.get(each, (0, where))
                if count or len(self.losses) < MAX_FINDINGS:
                    self.losses[each] = count + 1, first
            return
        kind = format_of(row)
        self.formats[str(kind)] += 1
        template = self.template.text if self.template else ""
        self.unused.update(
            set(unused_keys(row, used=KEYS[kind] if kind else (), template=template))
        )
        self._measure(row)

    def _losses(self, row: dict[str, Any]) -> list[Loss]:
        """Return the parts of a row's conversations that the chat template leaves out or rejects.

        Each is returned as (part, remedy). If the template leaves out the thinking of an answer in `messages`, the
        remedy is empty: the job may render this row with TRL's training template, which may keep the thinking.
        """
        if self.template is None or self.num_rendered >= MAX_RENDERED:
            return []
        found: list[Loss] = []
        for messages in conversations_of(row):
            if not self.template.sources:
                return [_NO_TEMPLATE]
            self.num_rendered += 1
            try:
                tools, render = tools_of(row), self.template.render
                learned = with_call_arguments(messages, tools=tools, render=render)
                found += losses_of(learned, tools=tools, render=render)
            except (TemplateError, TypeError, ValueError, KeyError) as error:
                found.append(
                    (
                        f"a conversation that the base model's chat template rejects ({error})",
                        "correct the row, or use another chat template",
                    )
                )
        if "messages" in row:
            found = [(THINKING, "") if each[0].startswith(THINKING) else each for each in found]
        return list(dict.fromkeys(found))

    def _measure(self, row: dict[str, Any]) -> None:
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts_of(row))
        self.text_bytes += size
        self.longest_bytes = max(self.longest_bytes, size)
        self._sizes[next((each for each in _BUCKETS if size <= each), _BUCKETS[-1])] += 1
        kind = format_of(row)
        used = {key: row.get(key) for key in (*(KEYS[kind] if kind else ()), "tools")}
        digest = hashlib.blake2b(json.dumps(used, sort_keys=True).encode(), digest_size=8).digest()
        if digest in self._digests:
            self.num_duplicates += 1
        elif len(self._digests) < MAX_DIGESTS:
            self._digests.add(digest)

    @property
    def is_complete(self) -> bool:
        """True if every byte was read."""
        return self.read_bytes >= self.all_bytes

    @property
    def estimated_rows(self) -> int:
        """Number of rows below the prefix; an estimate from its size if it was not read in full."""
        return round(self.num_rows * max(1.0, self.all_bytes / max(1, self.read_bytes)))

    @property
    def estimated_tokens(self) -> int:
        """Number of tokens in the texts below the prefix, estimated at `BYTES_PER_TOKEN`. A chat template adds more."""
        whole = max(1.0, self.all_bytes / max(1, self.read_bytes))
        return round(self.text_bytes / BYTES_PER_TOKEN * whole)

    def num_longer_than(self, tokens: int) -> int:
        """Return a lower bound on the number of rows longer than `tokens` tokens, from a histogram of row sizes."""
        least = tokens * BYTES_PER_TOKEN
        return sum(count for size, count in self._sizes.items() if size // 2 >= least)

    def raise_errors(self) -> None:
        """Raise an error if there are bad rows.

        Raises:
            SpecError: there are bad rows; the first of them are listed by file and number.
        """
        if not self.num_bad:
            return
        subject = f"{self.num_bad} of {self.num_rows} rows of {self.uri}"
        lost = [
            Finding(
                where=first + _others(count - 1),
                what=f"has {what}" if count == 1 else f"have {what}",
                next_step=remedy,
            )
            for (what, remedy), (count, first) in self.losses.items()
        ]
        raise SpecError([*lost, *self.findings][:MAX_FINDINGS], subject=subject)

    def warnings(self, *, max_length: int) -> Iterator[str]:
        """Yield warnings of duplicates, long rows, mixed formats, unused keys and an incomplete read."""
        if self.num_duplicates:
            yield f"{self.uri}: {self.num_duplicates} of {self.num_rows} rows are duplicates"
        if longer := self.num_longer_than(max_length):
            yield f"{self.uri}: at least {longer} rows are longer than max_length {max_length} and will be cut"
        if len(self.formats) > 1:
            yield f"{self.uri}: rows of several formats: {dict(self.formats)}"
        if self.unused:
            parts = ", ".join(
                f"{name} in {count} rows" for name, count in sorted(self.unused.items())
            )
            yield f"{self.uri}: parts that the training ignores: {parts}"
        if not self.is_complete:
            yield (
                f"{self.uri}: {format_bytes(self.read_bytes)} of {format_bytes(self.all_bytes)} were read; the "
                "number of rows in the rest is estimated from its size"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON-safe data."""
        return {
            "uri": self.uri,
            "num_files": self.num_files,
            "num_rows": self.num_rows,
            "num_duplicates": self.num_duplicates,
            "formats": dict(self.formats),
            "read_bytes": self.read_bytes,
            "all_bytes": self.all_bytes,
            "mean_row_bytes": self.text_bytes / max(1, self.num_rows),
            "longest_row_bytes": self.longest_bytes,
            "estimated_rows": self.estimated_rows,
            "estimated_tokens": self.estimated_tokens,
        }


def _others(count: int) -> str:
    return f", and {count} other {'row' if count == 1 else 'rows'}" if count else ""


def _too_long(name: str, number: int) -> Finding:
    return Finding(
        where=f"{name} row {number}",
        what="is too long",
        allowed=f"less than {format_bytes(MAX_ROW_BYTES)}",
        next_step="shorten the row, or check that each row ends with a line break",
    )
