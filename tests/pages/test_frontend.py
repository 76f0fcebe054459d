"""The pages' sources: their own tests, the committed build, and what axe finds in it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions as condition
from selenium.webdriver.support.wait import WebDriverWait

from tests.limits import EVENT_LIMIT_S
from tests.pages.served_pages import STATIC, served_pages
from tests.stack.browser import needs_browser, new_browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

FRONTEND = STATIC.parent / "frontend"
NPM = shutil.which("npm")
needs_npm = pytest.mark.skipif(not NPM, reason="npm is not installed")


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with their packages."""
    folder = tmp_path_factory.mktemp("pages") / "frontend"
    shutil.copytree(FRONTEND, folder, ignore=shutil.ignore_patterns("node_modules"))
    run(folder, "ci", "--no-audit", "--no-fund")
    return folder


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [str(NPM), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@needs_npm
def test_the_sources_pass_their_own_tests(frontend: Path) -> None:
    run(frontend, "test")


@pytest.mark.slow
@needs_npm
def test_the_committed_build_is_the_sources_build(frontend: Path) -> None:
    run(frontend, "run", "build")
    built = frontend.parent / "static"
    assert {each.name: each.read_bytes() for each in built.iterdir()} == {
        each.name: each.read_bytes() for each in STATIC.iterdir()
    }


@pytest.fixture
def page_browser(tmp_path: Path) -> Iterator[WebDriver]:
    driver = new_browser(tmp_path)
    yield driver
    driver.quit()


@pytest.mark.slow
@needs_npm
@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("path", "drawn"), [("run", ".chart canvas"), ("fleet", "tbody tr")])
def test_axe_finds_nothing_serious(
    frontend: Path, page_browser: WebDriver, path: str, drawn: str, theme: str
) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    page_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    with served_pages(num_points=300, num_runs=20) as address:
        page_browser.get(f"{address}/{path}?dag_id=train_end_to_end&run_id=run")
        page = WebDriverWait(page_browser, EVENT_LIMIT_S)
        page.until(condition.presence_of_element_located((By.CSS_SELECTOR, drawn)))
        found = violations(frontend, page_browser)
    assert found == []


@needs_browser
def test_the_fleet_is_sorted_and_compared_by_keyboard(page_browser: WebDriver) -> None:
    with served_pages(num_points=3, num_runs=12) as address:
        page_browser.get(f"{address}/fleet")
        page = WebDriverWait(page_browser, EVENT_LIMIT_S)
        rows = (By.CSS_SELECTOR, "tbody tr")
        page.until(condition.presence_of_all_elements_located(rows))
        cost = page_browser.find_element(By.XPATH, "//th/button[starts-with(text(), 'cost')]")
        cost.send_keys("\n")
        assert "$16.50" in page_browser.find_elements(*rows)[0].text
        for box in page_browser.find_elements(By.CSS_SELECTOR, "tbody input")[:2]:
            box.send_keys(" ")
        page.until(
            condition.text_to_be_present_in_element((By.TAG_NAME, "body"), "2 runs compared")
        )


@needs_browser
def test_a_compared_run_that_is_not_drawn_by_time_has_a_hint(page_browser: WebDriver) -> None:
    with served_pages(num_points=30, num_runs=3) as address:
        page, beside = opened_beside(page_browser, address)
        beside.send_keys("run 2")
        page.until(lambda driver: "loss (run 2)" in driver.page_source)
        hints = (By.CSS_SELECTOR, ".hint[role=status]")
        assert page_browser.find_elements(*hints) == []

        page_browser.find_element(By.XPATH, "//label[contains(., 'by time')]/input").click()

        hint = page.until(condition.presence_of_element_located(hints))
        assert "run 2 is not drawn by time" in hint.text


@needs_browser
def test_the_run_that_was_chosen_last_is_compared_even_if_another_is_answered_later(
    page_browser: WebDriver,
) -> None:
    answered = threading.Event()
    with served_pages(num_points=30, num_runs=3, held={"run 1": answered}) as address:
        page, beside = opened_beside(page_browser, address)
        beside.send_keys(*[Keys.ARROW_DOWN] * 3)
        page.until(lambda driver: "loss (run 2)" in driver.page_source)

        answered.set()

        page.until(lambda driver: len(answers_of(driver, "run 1")) == 1)
        assert "loss (run 1)" not in page_browser.page_source
        assert "loss (run 2)" in page_browser.page_source


def opened_beside(browser: WebDriver, address: str) -> tuple[WebDriverWait[WebDriver], WebElement]:
    """Return a wait on the opened training page, and its choice of a second run with the runs loaded."""
    browser.get(f"{address}/run?dag_id=train_end_to_end&run_id=run")
    page = WebDriverWait(browser, EVENT_LIMIT_S)
    page.until(condition.presence_of_element_located((By.CSS_SELECTOR, ".chart canvas")))
    beside = browser.find_element(By.XPATH, "//label[contains(., 'beside')]/select")
    browser.execute_script("arguments[0].focus()", beside)
    page.until(condition.presence_of_element_located((By.XPATH, "//option[text() = 'run 2']")))
    return page, beside


def answers_of(browser: WebDriver, run_id: str) -> list[str]:
    """Return the addresses of the answered requests about a run."""
    names: list[str] = browser.execute_script(
        "return performance.getEntriesByType('resource').filter((r) => r.responseEnd).map((r) => r.name)"
    )
    return [each for each in names if parse_qs(urlsplit(each).query).get("run_id") == [run_id]]


def violations(frontend: Path, browser: WebDriver) -> list[Any]:
    """Return axe's serious and critical violations on the page, each with its elements."""
    browser.execute_script((frontend / "node_modules/axe-core/axe.min.js").read_text())
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then((r) => done(r.violations));"
    )
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
