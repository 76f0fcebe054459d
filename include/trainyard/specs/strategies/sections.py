"""Sections of an SDK `distribution`, read and checked before their combination determines the strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, unknown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TORCH_DISTRIBUTED = "torch_distributed"
PYTORCH_DDP = "pytorchddp"
DATA_PARALLEL = "smdistributed.dataparallel"
MODEL_PARALLEL = "smdistributed.modelparallel"
MPI = "mpi"
PARAMETER_SERVER = "parameter_server"
MULTI_WORKER_MIRRORED = "multi_worker_mirrored_strategy"
INSTANCE_GROUPS = "instance_groups"

KEYS: Mapping[str, tuple[str, ...]] = {
    TORCH_DISTRIBUTED: ("enabled", "processes_per_host"),
    PYTORCH_DDP: ("enabled", "processes_per_host", "custom_mpi_options"),
    DATA_PARALLEL: ("enabled", "processes_per_host", "custom_mpi_options"),
    MODEL_PARALLEL: ("enabled", "parameters"),
    MPI: ("enabled", "processes_per_host", "custom_mpi_options"),
    PARAMETER_SERVER: ("enabled",),
    MULTI_WORKER_MIRRORED: ("enabled",),
}
"""Settings of each section. All are the SDK's, except `processes_per_host`, which the SDK has in `mpi` only."""

_SMDISTRIBUTED = "smdistributed"
_TOP = tuple(dict.fromkeys(section.split(".", maxsplit=1)[0] for section in KEYS))
_TYPES = {
    "enabled": "true or false",
    "processes_per_host": "a whole number of at least 1",
    "custom_mpi_options": "text",
    "parameters": "a mapping: the content of the file, not its name",
}

_TORCHRUN = '{"torch_distributed": {"enabled": true}}'
_SMDDP = '{"smdistributed": {"dataparallel": {"enabled": true}}}'
_SMP = (
    '{"torch_distributed": {"enabled": true}, "smdistributed": {"modelparallel": {"enabled": true, '
    '"parameters": {...}}}}'
)
_MPI = '{"mpi": {"enabled": true, "processes_per_host": n}}'

WRONG_NAMES: Mapping[str, str] = {
    "pytorchx": f"{_TORCHRUN} for torchrun, or pytorchddp for mpirun",
    "pytorch_ddp": f"pytorchddp for mpirun, or {_TORCHRUN}",
    "torchrun": _TORCHRUN,
    "torch": _TORCHRUN,
    "ddp": _TORCHRUN,
    "torch_distributed_enabled": _TORCHRUN,
    "smdistributed_dataparallel": _SMDDP,
    "smddp": _SMDDP,
    "dataparallel": _SMDDP,
    "smdistributed_modelparallel": _SMP,
    "smp": _SMP,
    "modelparallel": _SMP,
    "horovod": f"{_MPI}: Horovod runs through MPI",
    "sagemaker.horovod.Horovod": f"{_MPI}: Horovod runs through MPI",
    "deepspeed": "torch_distributed, and deepspeed.initialize in the script",
    "deepspeed_enabled": "torch_distributed, and deepspeed.initialize in the script",
    "fsdp": "torch_distributed, and torch's fully_shard in the script",
    "fsdp_enabled": "torch_distributed, and torch's fully_shard in the script",
    "accelerate": "torch_distributed, and the accelerate library in the script",
    "mpi_world_size": "processes_per_host: the launcher decides the number of processes",
    "parameterserver": '{"parameter_server": {"enabled": true}}',
    "multi_worker_mirrored": '{"multi_worker_mirrored_strategy": {"enabled": true}}',
}
"""Names that articles use but no SDK has, each with its replacement."""
NO_SECTIONS: Mapping[str, tuple[str, str]] = {
    "pytorchxla": (
        "is a strategy of the Training Compiler only, which AWS no longer releases",
        f"use {_TORCHRUN}",
    ),
    "mirrored_strategy": (
        "needs no launcher, because tf.distribute.MirroredStrategy is one process on one instance",
        "remove distribution, and set instance_count to 1",
    ),
}
"""Known names that are not sections of a distribution here: their meaning and the next step."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The settings of the enabled sections, checked one by one."""

    settings: Mapping[str, Mapping[str, Any]]

    @property
    def names(self) -> frozenset[str]:
        """The enabled sections."""
        return frozenset(self.settings)

    def get(self, section: str, key: str) -> Any:
        """Return a setting, or None if it is not set."""
        return self.settings.get(section, {}).get(key)


def read_sections(distribution: Mapping[str, Any]) -> Sections:
    """Return the enabled sections of a distribution; disabled sections are ignored.

    Raises:
        SpecError: keys or settings are unknown or wrong; the error lists all of them, with the right keys if known.
    """
    written = dict(_written(distribution))
    findings = [each for each in written.values() if isinstance(each, Finding)]
    found = {name: each for name, each in written.items() if not isinstance(each, Finding)}
    findings += [each for name in found for each in _section_findings(name, found[name])]
    if findings:
        raise SpecError(findings, subject="distribution")
    return Sections({name: each for name, each in found.items() if each.get("enabled")})


def read_instance_groups(distribution: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names in `instance_groups`; an entry is a name or an SDK `InstanceGroup`.

    Raises:
        SpecError: the value is of another type, or names more than one group: a strategy runs on one.
    """
    groups = distribution.get(INSTANCE_GROUPS) or ()
    listed = groups if isinstance(groups, (list, tuple)) else (groups,)
    names = [each if isinstance(each, str) else _group_name(each) for each in listed]
    if isinstance(groups, (list, tuple)) and len(names) <= 1 and all(names):
        return tuple(str(name) for name in names)
    raise SpecError(
        Finding(
            where=f"distribution.{INSTANCE_GROUPS}",
            what="is not a list with one group name",
            got=repr(groups),
            allowed="a list with the group that trains, such as ['gpu']",
        ),
        subject="distribution",
    )


def _group_name(group: object) -> object:
    if isinstance(group, Mapping):
        return group.get("instance_group_name")
    return getattr(group, "instance_group_name", None)


def _written(distribution: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | Finding]]:
    """Yield every section with its settings, or with a finding if its name or type is wrong."""
    for name, value in distribution.items():
        if name == INSTANCE_GROUPS:
            continue
        if name == _SMDISTRIBUTED and isinstance(value, Mapping):
            yield from _written_smdistributed(value)
        elif name == _SMDISTRIBUTED:
            yield name, _mistyped(name, value, '{"dataparallel": {"enabled": true}}')
        elif name not in KEYS:
            yield name, wrong_name("distribution", name, _TOP)
        elif isinstance(value, Mapping):
            yield name, value
        else:
            yield name, _mistyped(name, value, '{"enabled": true}')


def _written_smdistributed(
    value: Mapping[str, Any],
) -> Iterator[tuple[str, Mapping[str, Any] | Finding]]:
    for name, settings in value.items():
        section = f"{_SMDISTRIBUTED}.{name}"
        if section not in KEYS:
            known = ("dataparallel", "modelparallel")
            yield section, wrong_name(f"distribution.{_SMDISTRIBUTED}", name, known)
        elif isinstance(settings, Mapping):
            yield section, settings
        else:
            yield section, _mistyped(section, settings, '{"enabled": true}')


def _section_findings(section: str, settings: Mapping[str, Any]) -> Iterator[Finding]:
    for key, value in settings.items():
        if key not in KEYS[section]:
            yield wrong_name(f"distribution.{section}", key, KEYS[section])
        elif not _is_right(key, value):
            yield _mistyped(f"{section}.{key}", value, _TYPES[key])


def _is_right(key: str, value: object) -> bool:
    if key == "enabled":
        return isinstance(value, bool)
    if key == "processes_per_host":
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return value is None or is_count
    return isinstance(value, Mapping if key == "parameters" else str)


def wrong_name(where: str, name: str, known: Iterable[str]) -> Finding:
    """Return the finding for a name that the SDK does not have at this place, with the right one if it is known."""
    path = f"{where}.{name}"
    if name in WRONG_NAMES:
        return Finding(
            where=path,
            what="is not a strategy or setting of any SageMaker SDK",
            next_step=f"use {WRONG_NAMES[name]}",
        )
    if name in NO_SECTIONS:
        what, instead = NO_SECTIONS[name]
        return Finding(where=path, what=what, next_step=instead)
    return unknown_key(where, name, list(known))


def _mistyped(where: str, got: object, allowed: str) -> Finding:
    path = f"distribution.{where}"
    return Finding(where=path, what="has the wrong type or value", got=repr(got), allowed=allowed)
