"""How the ranks of a job are started: the SDK estimator's `distribution` argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from include.errors import Finding, SpecError, unknown_key

TORCH_DISTRIBUTED = "torch_distributed"

# Names of the SDK's `distribution` that this version of Trainyard does not launch yet.
NOT_YET = (
    "smdistributed",
    "mpi",
    "pytorchddp",
    "parameter_server",
    "multi_worker_mirrored_strategy",
    "pytorchxla",
    "instance_groups",
)

# Names that circulate in articles and are in no SDK, with what was meant.
WRONG_NAMES: Mapping[str, str] = {
    "pytorchx": '{"torch_distributed": {"enabled": true}}',
    "torchrun": '{"torch_distributed": {"enabled": true}}',
    "ddp": '{"torch_distributed": {"enabled": true}}',
    "torch_distributed_enabled": '{"torch_distributed": {"enabled": true}}',
    "smdistributed_dataparallel": '{"smdistributed": {"dataparallel": {"enabled": true}}}',
    "smdistributed_modelparallel": '{"smdistributed": {"modelparallel": {"enabled": true}}}',
    "dataparallel": '{"smdistributed": {"dataparallel": {"enabled": true}}}',
    "modelparallel": '{"smdistributed": {"modelparallel": {"enabled": true}}}',
    "horovod": '{"mpi": {"enabled": true, "processes_per_host": n}}: Horovod runs through MPI',
    "sagemaker.horovod.Horovod": '{"mpi": {"enabled": true, "processes_per_host": n}}',
    "deepspeed": "torch_distributed, and deepspeed.initialize in the script",
    "deepspeed_enabled": "torch_distributed, and deepspeed.initialize in the script",
    "mpi_world_size": "processes_per_host: the launcher decides the number of processes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDistributed:
    """Start the script by torchrun on every instance.

    Attributes:
        processes_per_host: ranks on each instance; None leaves it to the toolkit (one per GPU, one
            on CPU).
    """

    processes_per_host: int | None = None


def read_distribution(distribution: Mapping[str, Any]) -> TorchDistributed | None:
    """Return the launcher that an SDK `distribution` names; None for a plain process.

    Raises:
        SpecError: a wrong or unknown name (the message says the right one), or one not supported
            yet.
    """
    findings = [_refusal(name) for name in distribution if name != TORCH_DISTRIBUTED]
    settings = distribution.get(TORCH_DISTRIBUTED, {})
    if not isinstance(settings, Mapping):
        findings.append(_bad_setting("", settings, '{"enabled": true}'))
        settings = {}
    findings += [_wrong_setting(key) for key in settings if key not in _SETTINGS]
    enabled, processes = settings.get("enabled", False), settings.get("processes_per_host")
    if not isinstance(enabled, bool):
        findings.append(_bad_setting("enabled", enabled, "true or false"))
    if processes is not None and (
        isinstance(processes, bool) or not isinstance(processes, int) or processes < 1
    ):
        findings.append(
            _bad_setting("processes_per_host", processes, "a whole number of at least 1")
        )
    if findings:
        raise SpecError(findings, subject="distribution")
    return TorchDistributed(processes_per_host=processes) if enabled else None


_SETTINGS = ("enabled", "processes_per_host")


def _refusal(name: str) -> Finding:
    where = f"distribution.{name}"
    if name in WRONG_NAMES:
        return Finding(where=where, what="is in no SDK", next_step=f"write {WRONG_NAMES[name]}")
    if name in NOT_YET:
        return Finding(
            where=where,
            what="is the SDK's name, but Trainyard does not launch it yet",
            allowed='{} or {"torch_distributed": {"enabled": true}}',
        )
    return unknown_key("distribution", name, [TORCH_DISTRIBUTED, *NOT_YET])


def _wrong_setting(key: str) -> Finding:
    if key in WRONG_NAMES:
        return Finding(
            where=f"distribution.{TORCH_DISTRIBUTED}.{key}",
            what="is in no SDK",
            next_step=f"write {WRONG_NAMES[key]}",
        )
    return unknown_key(f"distribution.{TORCH_DISTRIBUTED}", key, _SETTINGS)


def _bad_setting(key: str, got: object, allowed: str) -> Finding:
    where = f"distribution.{TORCH_DISTRIBUTED}" + (f".{key}" if key else "")
    return Finding(where=where, what="has the wrong type or value", got=repr(got), allowed=allowed)
