"""Generator of `aws_images.json`: `python -m sagemaker_engine.images.aws_images_from_sdk`.

Source: the image URI tables in the installed `sagemaker-core` package. Review the difference before a commit.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_engine.images.aws_images import DATA_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SDK = "sagemaker-core"
FOLDER = "sagemaker/core/image_uri_config"
# Tags that the SDK's tables lack: AutoML's image, which Describe responses name, and the patch versions in
# aws/deep-learning-containers, docs/src/data/pytorch (2026-08-21).
MORE_TAGS = {
    "sagemaker-sklearn-automl": ("2.5-1-cpu-py3",),
    "pytorch": (
        *("2.11.0-cpu-amzn2023-sagemaker", "2.11.0-cu130-amzn2023-sagemaker"),
        *("2.12.1-cpu-amzn2023-sagemaker", "2.12.1-cu130-amzn2023-sagemaker"),
        *("2.13.0-cpu-amzn2023-sagemaker", "2.13.0-cu133-amzn2023-sagemaker"),
    ),
}
SAME_REGISTRY = {"sagemaker-sklearn-automl": "sagemaker-scikit-learn"}


def main() -> None:
    """Write the data file from the installed SDK's tables, with today's date."""
    table = {"as_of": datetime.now(tz=UTC).date().isoformat(), **read_sdk()}
    DATA_FILE.write_text(as_text(table), encoding="utf-8")
    sys.stdout.write(f"{DATA_FILE}: {len(table['repositories'])} repositories\n")


def read_sdk() -> dict[str, Any]:
    """Return the content of `aws_images.json` without its date.

    The sources are the installed SDK's tables and `MORE_TAGS`.
    """
    package = distribution(SDK)
    accounts: dict[str, dict[str, str]] = defaultdict(dict)
    tags: dict[str, set[str]] = defaultdict(set)
    for path in sorted(Path(str(package.locate_file(FOLDER))).glob("*.json")):
        for entry in _entries(json.loads(path.read_text(encoding="utf-8"))):
            accounts[entry["repository"]] |= entry["registries"]
            tags[entry["repository"]] |= set(_tags(entry, path.stem))
    for repository, more in MORE_TAGS.items():
        accounts[repository] = accounts[SAME_REGISTRY.get(repository, repository)]
        tags[repository] |= set(more)
    registries = sorted({json.dumps(each, sort_keys=True) for each in accounts.values()})
    return {
        "source": f"image_uri_config of {SDK} {package.version}",
        "registries": [json.loads(each) for each in registries],
        "repositories": {
            name: {
                "registry": registries.index(json.dumps(accounts[name], sort_keys=True)),
                "tags": sorted(tags[name]),
            }
            for name in sorted(accounts)
        },
    }


def as_text(table: Mapping[str, Any]) -> str:
    """Return the data file's text, with one registry and one repository per line."""
    registries = ",\n  ".join(json.dumps(each) for each in table["registries"])
    repositories = ",\n  ".join(
        f"{json.dumps(name)}: {json.dumps(each)}" for name, each in table["repositories"].items()
    )
    return (
        f'{{\n"as_of": {json.dumps(table["as_of"])},\n"source": {json.dumps(table["source"])},\n'
        f'"registries": [\n  {registries}\n],\n"repositories": {{\n  {repositories}\n}}\n}}\n'
    )


def _entries(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the images of one of the SDK's image URI tables.

    An entry has `names` (its version and aliases of that version), `processors`, and the members of
    the table, such as `repository`.
    """
    scopes = [config] if "versions" in config else [each for each in config.values() if _has(each)]
    for scope in scopes:
        aliases = scope.get("version_aliases", {})
        for version, entry in scope["versions"].items():
            names = [version, *(alias for alias, full in aliases.items() if full == version)]
            given = {"names": names, "processors": scope.get("processors") or [None]}
            if "repository" in entry:
                yield {**given, **entry}
                continue
            # Under a version there is one entry per Python version, or per base framework (Hugging Face).
            for base, below in entry.items():
                if isinstance(below, dict) and "repository" in below:
                    yield {**given, "base": base, **below}


def _has(scope: object) -> bool:
    return isinstance(scope, dict) and "versions" in scope


def _tags(entry: Mapping[str, Any], framework: str) -> Iterator[str]:
    """Yield the tags of an image in the form in which the SDK's `retrieve` builds them."""
    repository = entry["repository"]
    tool = next((each for each in ("neuronx", "neuron") if repository.endswith(each)), None)
    pythons = entry.get("py_versions") or [_python(entry.get("base"))]
    for prefix in _prefixes(entry):
        for processor in entry["processors"]:
            shown = tool or (processor if entry.get("processor_in_tag", True) else None)
            for container in _containers(entry, processor):
                for python in pythons:
                    tag = "-".join(part for part in (prefix, shown, python, container) if part)
                    yield tag.removesuffix("-gpu") if framework == "sagemaker-tritonserver" else tag


def _prefixes(entry: Mapping[str, Any]) -> list[str]:
    if "tag_prefix" in entry:
        return [entry["tag_prefix"]]
    base = str(entry.get("base", ""))
    for framework in ("pytorch", "tensorflow"):
        if base.startswith(framework):
            number = base.removeprefix(framework)
            return [f"{number}-transformers{name}" for name in entry["names"]]
    return list(entry["names"])


def _python(base: str | None) -> str | None:
    return base if base is not None and base.startswith("py") and base[2:].isdigit() else None


def _containers(entry: Mapping[str, Any], processor: str | None) -> list[str | None]:
    """Return the possible last parts of a tag. The list is [None] if the tag has no such part.

    A last part consists of the CUDA version and the system. If an image has Neuron SDK versions, there is one
    possible last part per version, and it begins with the version.
    """
    given = entry.get("container_version")
    found = given.get(processor) if isinstance(given, dict) else given
    is_arm = entry["repository"].endswith(("-graviton", "-arm64"))
    if found and is_arm:
        found = f"{found}-sagemaker"
    if "sdk_versions" in entry:
        return ["-".join(part for part in (each, found) if part) for each in entry["sdk_versions"]]
    return [found]


if __name__ == "__main__":
    main()
