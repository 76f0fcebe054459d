"""Stages of a run that the author of a DAG replaces, leaves out or adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.sdk import BaseOperator, XComArg

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_EVALUATION = {"evaluation_place": "none"}
"""Params of a run with a shipped model that has no evaluation of its own."""

Stage: TypeAlias = Callable[[], BaseOperator | XComArg] | bool | None
"""A stage of a pipeline: True = the run's own task, a function = the author's task, False or None = no such task."""


class StageUse(StrEnum):
    """Origin of a stage's task: the run's own, the DAG author's, or no task at all."""

    OWN = "own"
    """The run's own task."""
    REPLACED = "replaced"
    """A task of the DAG's author."""
    ABSENT = "absent"
    """No task."""


_INSTEAD = {StageUse.REPLACED: "has its own task", StageUse.ABSENT: "has no task"}
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "shard": ("shard_instance_count",),
    "evaluate": (
        *("evaluation_entry_point", "evaluation_inputs", "evaluation_place"),
        *("evaluation_max_samples", "evaluation_instance_type"),
        *("evaluation_max_run_s", "evaluation_volume_size_gb"),
    ),
    "register": ("register_when", "approval"),
}
"""Fields of the conf that only the run's own task of a stage reads."""
_UNSET: tuple[Any, ...] = (None, 0, (), [], {}, "auto", NO_EVALUATION["evaluation_place"])
_ALLOWED = {
    "prepare": (None, False),
    "shard": (True,),
    "evaluate": (True, False, None),
    "register": (True, False, None),
}
"""Values of each stage besides a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Stages of a pipeline that its author replaces, leaves out or adds.

    A stage is True for the run's own task, None or False for no task, or a function that creates the author's task.
    The function is called within the DAG, so the task gets the DAG's connection and retries. It may have the decorator
    `@task`.

    Attributes:
        prepare: adds a task between `preflight` and the first job, such as a Glue job that writes the data.
        shard: replaces `shard`. The result of the author's task has `dataset_uri`, the address of a sharded data set,
            and may have its `fingerprint`.
        evaluate: replaces or leaves out `evaluate`. The result of the author's task may have `metrics`, a mapping of
            names to numbers, for `register_when` and the report. Without an evaluation, `register_when` reads the
            training's metrics.
        register: replaces or leaves out `register`. The result of the author's task may have `model_package_arn`.
        own_shard, own_evaluation: create the run's own tasks.
        is_evaluation_optional: whether the model is registered if preflight skips the run's own evaluation.
    """

    prepare: Stage = None
    shard: Stage = True
    evaluate: Stage = True
    register: Stage = True
    own_shard: Callable[[], BaseOperator] | None = None
    own_evaluation: Callable[[], BaseOperator]
    is_evaluation_optional: bool = False

    def use(self, name: str) -> StageUse:
        """Return whether a stage has the run's own task, a task of the DAG's author, or none."""
        given = getattr(self, name)
        if callable(given):
            return StageUse.REPLACED
        return StageUse.OWN if given else StageUse.ABSENT

    def check(self, defaults: Mapping[str, Any], *, subject: str) -> None:
        """Check the stages and the defaults of the form's fields when the DAG file is parsed.

        Raises:
            SpecError: a stage is of a wrong kind, or a default would have no effect (see `findings`). The error lists
                all faults.
        """
        if findings := [*self._kinds(), *self.findings(defaults)]:
            raise SpecError(findings, subject=subject)

    def findings(self, params: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield an error for each param that has no effect because the DAG's author replaced or left out its task."""
        for stage, names in _SETTINGS.items():
            if (use := self.use(stage)) is StageUse.OWN:
                continue
            for name in names:
                if (value := params.get(name)) not in _UNSET:
                    yield Finding(
                        where=name,
                        what=f"has no effect, because this DAG {_INSTEAD[use]} for the stage {stage}",
                        got=str(value),
                        next_step="remove it",
                    )

    def prepared(self) -> list[BaseOperator]:
        """Create the tasks between preflight and the first job of the run."""
        made = [_made("prepare", self.prepare)] if callable(self.prepare) else []
        if callable(self.shard):
            made.append(_made("shard", self.shard))
        elif self.own_shard:
            made.append(self.own_shard())
        return made

    def measured(self) -> list[BaseOperator]:
        """Create the evaluation task; return an empty list if the stage is left out."""
        if callable(self.evaluate):
            return [_made("evaluate", self.evaluate)]
        return [self.own_evaluation()] if self.evaluate else []

    def registered(self, own: Callable[[], BaseOperator]) -> list[BaseOperator]:
        """Create the registration task; return an empty list if the stage is left out.

        Args:
            own: creates the run's own task, if the author has not replaced it.
        """
        if callable(self.register):
            return [_made("register", self.register)]
        return [own()] if self.register else []

    def _kinds(self) -> Iterator[Finding]:
        """Yield an error for each stage whose value is neither a function nor one of the constants allowed for it."""
        for name, allowed in _ALLOWED.items():
            given = getattr(self, name)
            if callable(given) or any(given is each for each in allowed):
                continue
            yield Finding(
                where=name,
                what="is not a stage",
                got=repr(given),
                allowed=f"a function that creates the task, {', '.join(map(str, allowed))}",
                next_step=f"such as {name}=lambda: MyOperator(task_id={name!r}); within the function the task gets the "
                "DAG's connection and retries",
            )


def _made(stage: str, create: Stage) -> BaseOperator:
    """Create the author's task of a stage.

    Raises:
        SpecError: `create` returned no task, or a task whose task_id is not the stage's name. The task of the stage
            `prepare` may have any task_id.
    """
    made = create() if callable(create) else None
    task = next(made.iter_references())[0] if isinstance(made, XComArg) else made
    if isinstance(task, BaseOperator) and stage in {"prepare", task.task_id}:
        return task
    wrong = Finding(
        where=stage,
        what="returned a task with another task_id" if task else "returned no task",
        got=getattr(task, "task_id", repr(task)),
        allowed="any task" if stage == "prepare" else f"a task with the task_id {stage!r}",
    )
    raise SpecError(wrong, subject="stages")
