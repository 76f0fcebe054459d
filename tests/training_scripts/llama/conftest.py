"""Folders of small Llama models, as transformers and as this repository write them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainer.llama.checkpoint import parameter_names, parts_of
from trainer.llama.config import read_config
from trainer.llama.safetensors import write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """Return the module that an image runs, too."""
    spec = importlib.util.spec_from_file_location("llama_cases", HERE / "llama_cases.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_folder(tmp_path: Path, cases: ModuleType) -> Callable[..., Path]:
    """Return a function that writes a case in the order of transformers, one tensor after the other by name."""

    def make(
        content: Mapping[str, Any] | None = None, *, max_file_bytes: int = 10**9, **tensors: Any
    ) -> Path:
        content = cases.SHAPE if content is None else content
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(content))
        shape = read_config(dict(content), file="config.json")
        parts: dict[str, Any] = {}
        for name in parameter_names(shape):
            parts |= parts_of(name, shape)
        weights = {name: cases.weight_of(name, size) for name, size in parts.items()}
        weights |= tensors
        kept = {name: each for name, each in sorted(weights.items()) if each is not None}
        groups = ({name: each} for name, each in kept.items())
        write_files(folder, groups, max_file_bytes=max_file_bytes)
        return folder

    return make
