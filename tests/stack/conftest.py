"""One real stack for the tests that need one: `up` at the first of them, `down` after the last."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stack.browser import new_browser
from tests.stack.live_stack import LiveStack, start, up
from trainyard.stack.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver.chrome.webdriver import WebDriver

DAGS = Path(__file__).with_name("dags")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[WebDriver]:
    """A browser of the test's own."""
    driver = new_browser(tmp_path)
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> LiveStack:
    """The one stack of the session, which the first test that asks for it starts.

    It ends with the last test of a live Airflow (`pytest_runtest_teardown`): idle, it takes a third of a core.
    """
    if sys.platform != "linux":
        pytest.skip("the stack's supervision needs Linux")
    if not up:
        home = Home.of(tmp_path_factory.mktemp("stack"))
        shutil.copytree(DAGS, home.dags)
        up.append(start(home))
    return up[0]
