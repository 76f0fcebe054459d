"""The README stays short, no link of a page is dead, and no line is too long."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reference.params_page import PAGE, render

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in (".", "docs", "docs/adr", "training_scripts", "benchmarks", "tests/clients")
    for path in (REPOSITORY / folder).glob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
UNBREAKABLE = re.compile(r"\s*(?:\||!?\[[^\]]*\]\(\S+\)|`[^`]*`\S*$)")
"""Beginning of a line that Markdown cannot continue on the next one: a table's row, a lone link or code span."""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = REPOSITORY / name
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("name", PAGES)
def test_no_line_of_prose_is_longer_than_120_characters(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in prose.splitlines() if len(line) > 120]
    assert [line for line in lines if not UNBREAKABLE.match(line)] == []


def test_the_readme_can_be_read_at_one_sitting() -> None:
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 140
    assert sum(len(line.split()) for line in lines) <= 900
    assert max(len(line) for line in lines) <= 100


@pytest.mark.dag_run
def test_the_page_of_the_params_is_what_the_dags_have() -> None:
    page = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert page == render(), f"{PAGE} is not what `make docs` writes"


# The builder "dummy" checks every link, but writes no page.
@pytest.mark.parametrize(
    ("builder", "output"),
    [
        ("dummy", ".doctrees/docs/params.doctree"),
        pytest.param("html", "docs/params.html", marks=pytest.mark.slow),
    ],
    ids=["links", "pages"],
)
def test_the_site_builds_without_a_warning(tmp_path: Path, builder: str, output: str) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder]
    done = subprocess.run(
        [*command, "-c", "docs/site", ".", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / output).exists()


def test_the_example_image_has_the_toolkit_that_the_engine_runs() -> None:
    dockerfile = (REPOSITORY / "docs/examples/own_image/Dockerfile").read_text(encoding="utf-8")
    pins = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8").splitlines()
    toolkit = [
        each
        for each in pins
        if each.startswith(("sagemaker-training==", "sagemaker-pytorch-training=="))
    ]
    assert len(toolkit) == 2
    assert all(each in dockerfile for each in toolkit)
