"""Headless Chromium, as a logged-in user of a stack's Airflow."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as condition
from selenium.webdriver.support.wait import WebDriverWait

from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver.chrome.webdriver import WebDriver

    from tests.stack.live_stack import LiveStack

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1400",
)

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="chromium and chromium-driver are not installed"
)


def new_browser(profile: Path) -> WebDriver:
    """Start a browser that keeps its profile in a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    service = webdriver.ChromeService(str(DRIVER), log_output=os.devnull)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(EVENT_LIMIT_S)
    return driver


def open_page(browser: WebDriver, stack: LiveStack, path: str) -> None:
    """Log in at a page of Airflow, which then opens."""
    browser.get(stack.url + path)
    page = WebDriverWait(browser, EVENT_LIMIT_S)
    page.until(condition.visibility_of_element_located((By.NAME, "username"))).send_keys("admin")
    browser.find_element(By.NAME, "password").send_keys(stack.password)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    page.until(lambda _: "/auth/login" not in browser.current_url, "the login did not end")
