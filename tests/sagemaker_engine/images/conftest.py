from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.0"


def make_wheel(folder: Path, name: str, content: str) -> None:
    """Write a wheel of one pure Python module, installable without network."""
    info = f"{name}-{VERSION}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def image_files(tmp_path: Path) -> Path:
    """A folder that describes one engine image, `tiny`, of a wheel that lies beside it."""
    folder = tmp_path / "image-files"
    (folder / "tiny").mkdir(parents=True)
    make_wheel(folder, "tiny", "ANSWER = 42\n")
    (folder / "tiny" / "requirements.txt").write_text(
        f"#: repositories = tiny\n--no-index\n--find-links {folder}\ntiny=={VERSION}\n"
    )
    return folder
