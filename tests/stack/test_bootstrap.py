"""What pip is told, uv is told."""

from __future__ import annotations

import tomllib
from pathlib import Path

from trainyard.stack import bootstrap
from trainyard.stack.bootstrap import uv_settings
from trainyard.stack.lock import pinned


def test_pips_wheels_and_indexes_are_handed_to_uv(tmp_path: Path) -> None:
    config = (
        f"global.find-links='{tmp_path}'\n"
        f"global.extra-index-url='file://{tmp_path} https://wheels.example.org/simple'\n"
        "global.index-url='https://mirror.example.org/simple'\n"
    )
    settings = uv_settings(config, environment={})
    assert settings["UV_FIND_LINKS"] == str(tmp_path)
    assert settings["UV_EXTRA_INDEX_URL"] == f"file://{tmp_path} https://wheels.example.org/simple"
    assert settings["UV_DEFAULT_INDEX"] == "https://mirror.example.org/simple"


def test_folders_that_do_not_exist_are_left_out(tmp_path: Path) -> None:
    config = f"global.find-links='{tmp_path / 'gone'}\\n{tmp_path}'\n"
    assert uv_settings(config, environment={})["UV_FIND_LINKS"] == str(tmp_path)


def test_the_environments_pip_settings_win_over_the_files(tmp_path: Path) -> None:
    (wins := tmp_path / "wins").mkdir()
    config = f":env:.find-links='{wins}'\nglobal.find-links='{tmp_path}'\n"
    assert uv_settings(config, environment={})["UV_FIND_LINKS"] == str(wins)


def test_uvs_own_variables_stay_as_the_user_set_them(tmp_path: Path) -> None:
    config = f"global.find-links='{tmp_path}'\n"
    assert "UV_FIND_LINKS" not in uv_settings(config, environment={"UV_FIND_LINKS": "/mine"})


def test_without_pip_settings_uv_is_told_nothing_about_places() -> None:
    assert set(uv_settings("", environment={})) == {"UV_INDEX_STRATEGY"}


def test_pins_hold_neither_cuda_packages_nor_local_versions() -> None:
    compiled = "# by uv\nboto3==1.2.3\nnvidia-cublas==13.0\ntorch==2.13.0+cpu\ntriton==3.4.0\n"
    assert pinned(compiled, header="# head") == "# head\nboto3==1.2.3\ntorch==2.13.0\n"


def test_the_python_of_the_pins_is_the_documented_one() -> None:
    python = ".".join(map(str, bootstrap.NEEDED))
    root = Path(__file__).resolve().parents[2]
    assert f"Python {python}," in (root / "README.md").read_text()
    assert f"It needs Python {python}." in (root / "docs" / "your_airflow.md").read_text()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["requires-python"].startswith(f">={python},")
