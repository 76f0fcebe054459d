"""An environment that cannot be built fails a test where there is a package index, and skips it where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.image_file import read_image_file
from sagemaker_engine.images.image_store import ImageStore
from tests.sagemaker_engine.images.built import has_index, need_built
from tests.sagemaker_engine.images.conftest import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_reached", "outcome"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)]
)
def test_a_wrong_pin_is_a_failure_where_there_is_an_index(
    image_files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_reached: bool,
    outcome: type[BaseException],
) -> None:
    for name in INDEX_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    if is_reached:
        make_wheel(image_files, "pip", "")
        monkeypatch.setenv("PIP_FIND_LINKS", str(image_files))
    assert has_index() is is_reached
    path = image_files / "tiny" / "requirements.txt"
    path.write_text(path.read_text().replace("tiny==1.0", "tiny==2.0"))

    with pytest.raises(outcome, match=r"No matching distribution found for tiny==2\.0"):
        need_built(ImageStore(folder=tmp_path / "images"), read_image_file(path))
