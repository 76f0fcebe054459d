"""Maintenance of `aws_images.json`: `python -m trainyard.catalog.aws_images_from_sdk` rewrites it.

Source: the images of the installed SageMaker SDK for each framework, version, Python and processor, and the registries
in its tables. Review the difference before a commit.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

from trainyard.catalog.aws_images import DATA_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TABLES = {
    "pytorch": ("pytorch", "pytorch-amzn2023"),
    "pytorch-smp": ("pytorch-smp",),
    "tensorflow": ("tensorflow",),
    "huggingface": ("huggingface",),
    "mxnet": ("mxnet",),
    "xgboost": ("xgboost",),
    "sklearn": ("sklearn",),
    "debugger": ("debugger",),
}
"""The SDK's tables for each framework."""
SERVING = {"pytorch-inference": "pytorch", "huggingface-inference": "huggingface"}
"""The frameworks of images that serve models, each with its table in the SDK."""
TYPES = {"cpu": "ml.m5.xlarge", "gpu": "ml.g5.xlarge", "trainium": "ml.trn1.2xlarge"}
# SDK v3 leaves this part of the model parallel library's tag out; v2's `get_training_image_uri` has it.
CUDA_OF_TORCH = {"2.5": "cu124", **dict.fromkeys(("2.1", "2.2", "2.3", "2.4"), "cu121")}
REGION = "us-east-1"
_MODEL_PARALLEL = "pytorch-smp"


def main() -> None:
    """Write the data file from the tables of the installed SDK, with today's date as `as_of`."""
    table = {"as_of": datetime.now(tz=UTC).date().isoformat(), **read_sdk()}
    DATA_FILE.write_text(as_text(table), encoding="utf-8")
    sys.stdout.write(f"{DATA_FILE}: {sum(map(len, table['images'].values()))} versions\n")


def read_sdk() -> dict[str, Any]:
    """Read the installed SDK, and return all members of the data file except its date."""
    images: dict[str, Any] = {}
    accounts: dict[str, dict[str, str]] = {}
    tables = [(name, table, "training") for name, all_ in TABLES.items() for table in all_]
    tables += [(name, table, "inference") for name, table in SERVING.items()]
    for framework, table, scope in tables:
        for version, processor, python, uri, accounts_by_region in _images(table, scope):
            repository = uri.partition("/")[2].partition(":")[0]
            accounts[repository] = accounts.get(repository, {}) | accounts_by_region
            of_version = images.setdefault(framework, {}).setdefault(version, {})
            of_version.setdefault(processor, {})[python] = uri.partition("/")[2]
    registries = sorted({json.dumps(each, sort_keys=True) for each in accounts.values()})
    indexes = {
        name: registries.index(json.dumps(each, sort_keys=True)) for name, each in accounts.items()
    }
    return {
        "source": f"sagemaker {installed('sagemaker')}",
        "images": images,
        "accounts": indexes,
        "registries": [json.loads(each) for each in registries],
    }


def as_text(table: Mapping[str, Any]) -> str:
    """Return the data file's text, with one version or one registry per line."""
    frameworks = ",\n".join(
        f"  {json.dumps(framework)}: {{\n"
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(each)}" for name, each in known.items())
        + "\n  }"
        for framework, known in table["images"].items()
    )
    registries = ",\n".join(f"  {json.dumps(each)}" for each in table["registries"])
    rest = "".join(
        f"{json.dumps(key)}: {json.dumps(table[key])},\n" for key in ("as_of", "source", "accounts")
    )
    return f'{{\n{rest}"registries": [\n{registries}\n],\n"images": {{\n{frameworks}\n}}\n}}\n'


def _scope(table: str, scope: str = "training") -> dict[str, Any]:
    from sagemaker.core import image_uris  # type: ignore[import-untyped]  # ships no types

    config = image_uris.config_for_framework(table)
    return dict(config.get(scope, config))


def _images(table: str, name: str) -> Iterator[tuple[str, str, str, str, dict[str, str]]]:
    """Yield version, processor, Python, URI and registries of each image in a table.

    `name` is the part of the table to read: `training` or `inference`. A shortened version such as `2.8` has an
    item of its own, because the SDK's tag for it may differ from that of the full version.
    """
    scope = _scope(table, name)
    aliases = scope.get("version_aliases", {})
    # The model parallel library's own versions are no torch versions: those are its aliases.
    own = () if table == _MODEL_PARALLEL else scope["versions"]
    for version in dict.fromkeys((*own, *aliases)):
        entry = scope["versions"].get(aliases.get(version, version), {})
        entries = [("", entry)] if "registries" in entry else _below(table, entry)
        for base, each in entries:
            for python in each.get("py_versions") or ("",):
                for processor, instance_type in TYPES.items():
                    uri = _retrieved(table, name, version, base, python, processor, instance_type)
                    if uri:
                        yield version, processor, python, uri, _registries(each, processor)


def _registries(entry: Mapping[str, Any], processor: str) -> dict[str, str]:
    if processor != "trainium":
        return dict(entry["registries"])
    newest: Mapping[str, Any] = list(_scope("pytorch-neuron")["versions"].values())[-1]
    return dict(newest["registries"])


def _below(table: str, entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the sub-entries of `entry` that describe images, as (name, sub-entry).

    `entry` is the entry of one version in an SDK table. In the table of Hugging Face, it has a
    sub-entry per framework version. Only the sub-entry of the newest PyTorch is then returned.
    """
    found = [(name, each) for name, each in entry.items() if name != "version_aliases"]
    if table != "huggingface":
        return [(name, each) for name, each in found if "registries" in each]
    torches = [(name, each) for name, each in found if name.startswith("pytorch")]
    return [max(torches, key=lambda each: _numbers(each[0]))] if torches else []


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _retrieved(
    table: str,
    scope: str,
    version: str,
    base: str,
    python: str,
    processor: str,
    instance_type: str,
) -> str | None:
    from sagemaker.core import image_uris

    is_smp = table == _MODEL_PARALLEL
    cuda = CUDA_OF_TORCH.get(".".join(version.split(".")[:2]))
    if (is_smp and not cuda) or (
        processor == "trainium" and (table, scope) != ("pytorch", "training")
    ):
        return None
    try:
        uri: str = image_uris.retrieve(
            table,
            REGION,
            version=version,
            py_version=python or None,
            instance_type=instance_type,
            image_scope=scope,
            base_framework_version=base if table == "huggingface" else None,
            container_version=cuda if is_smp else None,
        )
    except (ValueError, KeyError):
        return None
    is_trainium = "neuron" in uri
    return uri if is_trainium == (processor == "trainium") else None


if __name__ == "__main__":
    main()
