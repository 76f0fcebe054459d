"""The trigger form of the UI, driven in headless Chromium as a person would."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions as condition
from selenium.webdriver.support.wait import WebDriverWait

from tests.limits import EVENT_LIMIT_S
from tests.stack.browser import needs_browser, open_page
from tests.stack.small_run import SMALL_RUN
from trainyard.errors import RejectedRequestError

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

    from tests.stack.live_stack import LiveStack

DAG_ID = "train_end_to_end"
TYPED = {name: SMALL_RUN[name] for name in ("max_source_bytes", "num_layers", "max_steps")}
"""A field of three of the form's sections; the rest keeps its default."""

pytestmark = needs_browser


class TriggerForm:
    """The DAG's trigger form, opened by a logged-in user."""

    def __init__(self, browser: WebDriver, stack: LiveStack) -> None:
        self._browser = browser
        open_page(browser, stack, f"/dags/{DAG_ID}")
        self._click(By.CSS_SELECTOR, "[data-testid=trigger-dag-button]")

    def fill(self, values: dict[str, object]) -> None:
        """Type a value into each param's field."""
        for name, value in values.items():
            self._open_section_of(f"element_{name}")
            self._await(By.NAME, f"element_{name}")
            WebDriverWait(
                self._browser, EVENT_LIMIT_S, ignored_exceptions=(StaleElementReferenceException,)
            ).until(partial(self._holds, f"element_{name}", str(value)), f"{name} took no value")

    def submit(self) -> None:
        """Press the form's own Trigger button."""
        self._click(By.CSS_SELECTOR, "[data-testid=trigger-dag-submit]")

    def shows(self, text: str) -> bool:
        """Tell whether the page comes to show a text."""
        page = WebDriverWait(self._browser, EVENT_LIMIT_S)
        return bool(
            page.until(condition.text_to_be_present_in_element((By.TAG_NAME, "body"), text))
        )

    def error(self) -> str:
        """Return what the page says against the values; empty while it says nothing."""
        page = self._browser.find_element(By.TAG_NAME, "body").text
        return next((line for line in page.splitlines() if "Invalid input" in line), "")

    def _holds(self, name: str, text: str, browser: WebDriver) -> bool:
        """Type a text and return whether the field has it: a page that is still being built may put its own back."""
        browser.find_element(By.NAME, name).send_keys(Keys.CONTROL, "a")
        browser.find_element(By.NAME, name).send_keys(text, Keys.TAB)
        return bool(browser.find_element(By.NAME, name).get_attribute("value") == text)

    def _open_section_of(self, name: str) -> None:
        """Open the section that holds a field; the form shows one section at a time."""
        self._there(By.NAME, name)
        holder = f"//*[@data-scope='accordion' and @data-part='item' and .//*[@name='{name}']]"
        trigger = self._there(By.XPATH, f"{holder}//button[@data-part='item-trigger']")
        if trigger.get_attribute("aria-expanded") == "false":
            self._press(trigger)

    def _there(self, by: str, what: str) -> WebElement:
        return WebDriverWait(self._browser, EVENT_LIMIT_S).until(
            condition.presence_of_element_located((by, what)), f"{what} did not appear"
        )

    def _press(self, element: WebElement) -> None:
        """Click as soon as nothing that moves covers it."""
        covered = (ElementClickInterceptedException, ElementNotInteractableException)
        WebDriverWait(self._browser, EVENT_LIMIT_S, ignored_exceptions=covered).until(
            lambda _: element.click() is None, "it stayed covered"
        )

    def _await(self, by: str, what: str) -> WebElement:
        return WebDriverWait(self._browser, EVENT_LIMIT_S).until(
            condition.visibility_of_element_located((by, what)), f"{what} did not appear"
        )

    def _click(self, by: str, what: str) -> None:
        self._press(self._await(by, what))


def test_the_form_starts_a_run_with_its_values_that_preflight_accepts(
    browser: WebDriver, stack: LiveStack
) -> None:
    stack.api.set_paused(DAG_ID, paused=False)
    before = set(stack.runs(DAG_ID))
    form = TriggerForm(browser, stack)

    form.fill(TYPED)
    form.submit()

    stack.wait(lambda: set(stack.runs(DAG_ID)) - before or form.error(), "an answer to the form")
    assert not form.error()
    (run_id,) = set(stack.runs(DAG_ID)) - before
    conf = stack.api.run(DAG_ID, run_id)["conf"]
    assert {name: conf[name] for name in TYPED} == TYPED
    stack.passes_preflight(DAG_ID, run_id)


@pytest.mark.slow
def test_the_form_refuses_what_rest_refuses_with_the_same_message(
    browser: WebDriver, stack: LiveStack
) -> None:
    wrong = {"instance_type": "no such type"}
    before = stack.runs(DAG_ID)
    with pytest.raises(RejectedRequestError) as refused:
        stack.api.trigger(DAG_ID, conf=wrong)
    message = refused.value.what.splitlines()[1].strip()
    assert message.startswith("1. instance_type: is malformed; got 'no such type'")
    form = TriggerForm(browser, stack)

    form.fill(wrong)
    form.submit()

    assert form.shows(message)
    assert "Invalid input for train_end_to_end: 1 problem(s)" in form.error()
    assert stack.runs(DAG_ID) == before
