"""Initial weights of a training, from the channel `init`."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer.artifacts import ARCHIVE, unpack
from trainer.decoder_config import GPTConfig
from trainer.llama.checkpoint import LlamaCheckpoint
from trainer.llama.config import CHANNEL, CONFIG_FILE
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from trainyard_watch.distributed import Ranks

FOLDER = "initial-model"
"""Folder in the container's base folder into which a model.tar.gz is unpacked while the weights are read."""


@contextmanager
def initial_weights(
    channel: Path | None, config: Mapping[str, Any], ranks: Ranks, *, base_dir: Path
) -> Iterator[LlamaCheckpoint | None]:
    """Yield the weights in the channel for the model that `config` describes, or None if there is no channel.

    The channel has a model's files, as `save_pretrained` or a training job wrote them, or a job's
    model.tar.gz. The files or the archive may be in a subfolder. The first rank of each host unpacks the
    archive. The unpacked files are removed when the context ends.

    Raises:
        DataError: the channel has no such model, more than one, or one that does not fit the config. All ranks
            raise it.
    """
    if channel is None:
        yield None
        return
    place, leads = base_dir / FOLDER, ranks.local_rank == 0
    try:
        with ranks.all_or_none():
            found = find_model(channel, config)
            if found.name == ARCHIVE and leads:
                shutil.rmtree(place, ignore_errors=True)  # of a start that was killed
                unpack(found, place)
        with ranks.all_or_none():
            folder = place if found.name == ARCHIVE else found.parent
            opened = LlamaCheckpoint.open(folder, ours=GPTConfig.of(config))
        yield opened
        ranks.barrier()  # the files stay until the last rank has read its weights
    finally:
        if leads:
            shutil.rmtree(place, ignore_errors=True)


def find_model(channel: Path, config: Mapping[str, Any]) -> Path:
    """Return the config.json or the model.tar.gz of the model nearest to the channel's root folder.

    Args:
        channel: folder of the channel.
        config: configuration of the model to train, for `trainer.models.build`.

    Raises:
        DataError: the channel has no model, several are equally near, or the model to train is not a decoder.
    """
    if (kind := config["kind"]) != "gpt":
        raise DataError(
            f"channel {CHANNEL!r} has weights of a decoder, but model is {kind!r}; remove the channel, or "
            "set model to 'gpt'"
        )
    candidates = [*channel.rglob(CONFIG_FILE), *channel.rglob(ARCHIVE)]
    depth = min((len(each.parts) for each in candidates), default=0)
    found = sorted(each for each in candidates if len(each.parts) == depth)
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(each.relative_to(channel)) for each in found[:5]) or "none"
    raise DataError(
        f"channel {CHANNEL!r} needs one model ({CONFIG_FILE} and safetensors, or {ARCHIVE}), found {names}; use the "
        "S3 prefix of one model"
    )
