"""A conf that cannot be used is refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainyard.errors import TrainingRunError
from trainyard.stack import conf
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from pathlib import Path


def test_no_file_means_all_defaults() -> None:
    assert conf.load(None) == {}


def test_an_object_is_loaded(tmp_path: Path) -> None:
    (file := tmp_path / "conf.json").write_text('{"max_steps": 3}')
    assert conf.load(file) == {"max_steps": 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param("max_steps: 3", "is not JSON", id="not JSON"),
        pytest.param("[1, 2]", "does not contain a JSON object", id="a list"),
        pytest.param(b"\xff\xfe", "is not JSON", id="not text"),
    ],
)
def test_anything_else_is_an_error_that_names_the_file(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    file = tmp_path / "conf.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TrainingRunError, match=message) as caught:
        conf.load(file)
    assert caught.value.where == str(file)


def test_a_faulty_conf_is_refused_with_all_that_the_linter_says(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home")
    (file := tmp_path / "conf.json").write_text('{"max_stepz": 3, "precision": "fp64"}')
    (good := tmp_path / "good.json").write_text('{"max_steps": 5}')

    with pytest.raises(TrainingRunError) as caught:
        conf.check(file, home)
    conf.check(good, home)

    for part in (
        "max_stepz: is an unknown key",
        "precision: is not an allowed value",
        "2 error(s)",
    ):
        assert part in str(caught.value)
