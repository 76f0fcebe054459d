"""Findings on the model in S3 that provides a training's initial weights.

Preflight reports them before anything is paid.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard.specs.run_conf import readable_conf
from trainyard.units import BYTES_PER_GIB, format_bytes
from trainyard_airflow.operators.script_check import ScriptJob, script_findings
from trainyard_airflow.tasks.end_to_end.jobs import TRAINING_ENTRY_POINTS, training_hyperparameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from trainyard.sharding.objects import ObjectHead
    from trainyard.specs.run_conf import RunConf
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

WHERE = "init_from"
CONFIG_FILE, ARCHIVE, WEIGHTS = "config.json", "model.tar.gz", ".safetensors"


def init_findings(
    clients: AwsClients, params: Mapping[str, Any], *, scripts: Path
) -> Iterator[Finding]:
    """Yield the findings on the model at `init_from`; none if `init_from` is not set or the conf is invalid.

    This function reads the model's config.json, and the training script's own check compares it with the
    hyperparameters. The content of a model.tar.gz is not read here. The training script compares that
    content in the job, before the first step.
    """
    from trainyard_airflow.hooks import account_check
    from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

    conf = readable_conf(params) if params.get(WHERE) else None
    uri = conf.init_from if conf else None
    if conf is None or uri is None:
        return
    if missing := list(account_check.channel_findings(clients, uri, where=WHERE)):
        yield from missing
        return
    stored = S3DatasetObjects(clients.client("s3"))
    try:
        heads = account_check.asked(lambda: list(stored.list(uri)), where=WHERE, got=uri)
        yield from _volume_findings(conf, heads)
        found = _models(heads)
        if len(found) != 1:
            yield _not_one(uri, found)
        elif found[0].endswith(CONFIG_FILE):
            yield from _config_findings(conf, found[0], stored=stored, heads=heads, scripts=scripts)
    except SpecError as error:
        yield from error.findings


def _models(heads: Sequence[ObjectHead]) -> list[str]:
    """Return the addresses of each config.json or model.tar.gz at the highest folder level that has one.

    The training script selects the model's file in the same way.
    """
    uris = [each.uri for each in heads if each.uri.endswith((f"/{CONFIG_FILE}", f"/{ARCHIVE}"))]
    depth = min((each.count("/") for each in uris), default=0)
    return [each for each in uris if each.count("/") == depth]


def _not_one(uri: str, found: Sequence[str]) -> Finding:
    return Finding(
        where=WHERE,
        what=f"needs one model: {CONFIG_FILE} with safetensors, or {ARCHIVE}",
        got=f"{uri} with {', '.join(found[:3]) or 'neither'}",
        next_step="set the prefix of one model, with a slash at its end",
    )


def _config_findings(
    conf: RunConf, uri: str, *, stored: S3DatasetObjects, heads: Sequence[ObjectHead], scripts: Path
) -> Iterator[Finding]:
    folder = uri.removesuffix(CONFIG_FILE)
    beside = [each.uri for each in heads if each.uri.rpartition("/")[0] == folder.rstrip("/")]
    if not any(each.endswith(WEIGHTS) for each in beside):
        yield Finding(
            where=WHERE,
            what="has no safetensors beside its config.json",
            got=folder,
            next_step="convert the weights with save_pretrained(folder, safe_serialization=True)",
        )
    try:
        with stored.open(uri) as file:
            content = json.loads(file.read())
    except ValueError as error:
        yield Finding(where=WHERE, what=f"has a config.json that is not JSON ({error})", got=uri)
        return
    job = ScriptJob(
        where=WHERE,
        entry_point=TRAINING_ENTRY_POINTS[conf.strategy],
        hyperparameters=training_hyperparameters(conf),
        ranks=conf.world_size,
        init={"content": content, "file": uri, "vocab_size": _vocabulary_size(conf, stored)},
    )
    yield from script_findings(scripts, [job])[0]


def _vocabulary_size(conf: RunConf, stored: S3DatasetObjects) -> int | None:
    """Return the size of the data's vocabulary; None if the tokenizer is a file outside of S3, or cannot be read."""
    from trainyard.sharding.settings import BYTES_TOKENIZER
    from trainyard.sharding.tokenizer import load_tokenizer

    if conf.vocab_size:
        return conf.vocab_size
    if not conf.tokenizer.startswith(("s3://", BYTES_TOKENIZER)):
        return None
    try:
        return load_tokenizer(conf.tokenizer, stored).vocab_size
    except (
        SpecError,
        ImportError,
    ):  # reported for the tokenizer; workers that do not shard may lack the library
        return None


def _volume_findings(conf: RunConf, heads: Sequence[ObjectHead]) -> Iterator[Finding]:
    """Yield a finding if an instance's volume is too small for the initial weights.

    An archive needs its size twice: packed and unpacked.
    """
    needed = sum(each.size * (2 if each.uri.endswith(ARCHIVE) else 1) for each in heads)
    if needed > conf.volume_size_gb * BYTES_PER_GIB:
        yield Finding(
            where="volume_size_gb",
            what="is too small for the initial weights",
            got=str(conf.volume_size_gb),
            allowed=f"more than {needed / BYTES_PER_GIB:.0f} ({format_bytes(needed)} below {WHERE}, with an "
            "unpacked archive)",
        )
