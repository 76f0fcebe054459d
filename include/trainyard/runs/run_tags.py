"""Tags of billed resources. The tags name the task that created the resource. Pure."""

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
"""Tag of a resource that should outlive its run, such as a serving endpoint. Any value counts."""

_MOST_CHARACTERS = 256
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 _.:/+@-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Task that created a billed resource.

    Attributes:
        deployment: name of the Airflow deployment, from `trainyard.deployment` in the connection's extra; None if it
            is not set.
    """

    dag_id: str
    run_id: str
    task_id: str
    deployment: str | None = None

    def tags(self) -> dict[str, str]:
        """Return the tags; `from_tags` reads them back.

        The run id is escaped (`é` becomes `=C3=A9`), because tags allow few characters. If it then has more than 256
        characters, RUN_ID is omitted, and `from_tags` returns None.
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
        """Return the owner that the tags name; None if DAG, RUN_ID or TASK is missing."""
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
