"""The tags that lead from a paid thing back to the task that created it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trainyard.sagemaker_api.names import run_slug

if TYPE_CHECKING:
    from collections.abc import Mapping

DEPLOYMENT = "trainyard:deployment"
DAG = "trainyard:dag"
RUN = "trainyard:run"
RUN_ID = "trainyard:run-id"
TASK = "trainyard:task"
KEEP = "trainyard:keep"
"""Whoever means a thing to outlive its run, such as an endpoint that serves, tags it so: with any value."""

_MOST_CHARACTERS = 256
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 _.:/+@-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The task that created a paid thing.

    Attributes:
        deployment: the Airflow it belongs to, as its connection's extra `trainyard.deployment` names it; None if
            it names none.
    """

    dag_id: str
    run_id: str
    task_id: str
    deployment: str | None = None

    def tags(self) -> dict[str, str]:
        """Return the tags; `from_tags` reads them back.

        A run id is escaped (`é` is `=C3=A9`), as tags allow few characters. One that does not fit in 256 characters
        is left out: then nobody can tell whether the run still lives.
        """
        run_id = _NOT_PLAIN.sub(_escaped, self.run_id)
        return {
            DAG: self.dag_id[:_MOST_CHARACTERS],
            RUN: run_slug(self.run_id),
            TASK: self.task_id[:_MOST_CHARACTERS],
            **({RUN_ID: run_id} if len(run_id) <= _MOST_CHARACTERS else {}),
            **({DEPLOYMENT: self.deployment} if self.deployment else {}),
        }

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> Self | None:
        """Return whose the thing is; None if the tags do not say."""
        if not {DAG, RUN_ID, TASK} <= set(tags):
            return None
        return cls(
            dag_id=tags[DAG],
            run_id=_unescaped(tags[RUN_ID]),
            task_id=tags[TASK],
            deployment=tags.get(DEPLOYMENT),
        )


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace("=", "")).decode("utf-8", "surrogatepass")

    return re.sub(r"(?:=[0-9A-F]{2})+", plain, text)
