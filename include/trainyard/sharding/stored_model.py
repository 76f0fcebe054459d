"""Kind of a model in S3: an adapter or a whole model."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from trainyard.sharding.chat_template import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.sharding.objects import Objects

_OF_ADAPTERS = "adapter_"
_OF_WHOLE_MODELS = ("model.", "model-", "pytorch_model")


def is_adapter(objects: Objects, prefix: str) -> bool | None:
    """Return whether the model below a prefix is an adapter; None if no model can be read.

    False means a whole model. If there is a model.tar.gz below the prefix, the first one is the model.
    Otherwise, the model consists of the files there. An archive is read only up to the first file that shows
    the kind of model. In the model.tar.gz of a fine-tuning job, only small files precede that file.
    """
    uris = [each.uri for each in objects.list(prefix)]
    archive = next((each for each in uris if each.rpartition("/")[2] == ARCHIVE), None)
    if archive is None:
        return _decided(sorted(uris, key=lambda uri: uri.count("/")))
    try:
        with (
            objects.open(archive) as stream,
            tarfile.open(fileobj=stream, mode="r|gz") as members,
        ):
            return _decided(each.name for each in members)
    except tarfile.TarError:
        return None


def _decided(paths: Iterable[str]) -> bool | None:
    """Return True if the first model file belongs to an adapter, and False if it belongs to a whole model.

    Return None if no path is a model file.
    """
    for path in paths:
        name = path.rpartition("/")[2]
        if name.startswith(_OF_ADAPTERS):  # adapter_config.json, adapter_model.safetensors
            return True
        if name.startswith(_OF_WHOLE_MODELS):  # model-00001-of-00002.safetensors
            return False
    return None
