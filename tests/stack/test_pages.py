"""The training tab and the fleet page in a live Airflow, seen by a browser and by people without rights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as condition
from selenium.webdriver.support.wait import WebDriverWait

from tests.limits import EVENT_LIMIT_S
from tests.stack.browser import needs_browser, open_page
from tests.stack.small_run import SMALL_RUN

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

    from tests.stack.live_stack import LiveStack

DAG_ID = "train_end_to_end"
PAGES_DATA = ("api/run", "api/log", "api/fleet", "metrics")


@pytest.fixture(scope="module")
def run_id(stack: LiveStack) -> str:
    """A run that has begun and goes on while the tests look at it."""
    stack.api.set_paused(DAG_ID, paused=False)
    return stack.api.trigger(DAG_ID, conf=SMALL_RUN)


@pytest.fixture(scope="module")
def ended_run_id(stack: LiveStack) -> str:
    """A run that trained nothing."""
    stack.api.set_paused(DAG_ID, paused=False)
    run_id = stack.api.trigger(DAG_ID, conf=SMALL_RUN)
    stack.api.fail_run(DAG_ID, run_id)
    return run_id


def token(stack: LiveStack, **claims: Any) -> str:
    """Return the token of a user; with other claims than the admin's, of another one."""
    login = {"username": "admin", "password": stack.password}
    answer = requests.post(f"{stack.url}/auth/token", json=login, timeout=EVENT_LIMIT_S)
    own = str(answer.json()["access_token"])
    if not claims:
        return own
    secret = json.loads((stack.home.path / "identity.json").read_text())["jwt_secret"]
    known = jwt.decode(own, options={"verify_signature": False})
    return jwt.encode({**known, **claims}, secret, algorithm="HS512")


def ask(stack: LiveStack, path: str, run_id: str, *, token: str | None) -> requests.Response:
    return requests.get(
        f"{stack.url}/trainyard/{path}",
        params={"dag_id": DAG_ID, "run_id": run_id},
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=EVENT_LIMIT_S,
    )


@pytest.mark.parametrize("path", PAGES_DATA)
def test_nobody_sees_data_without_a_login(stack: LiveStack, ended_run_id: str, path: str) -> None:
    assert ask(stack, path, ended_run_id, token=None).status_code == 401


def test_who_may_not_read_the_dag_sees_nothing_of_its_runs(
    stack: LiveStack, ended_run_id: str
) -> None:
    nobody = token(stack, sub="nobody", role=None)
    assert ask(stack, "api/run", ended_run_id, token=nobody).status_code == 403
    assert ask(stack, "api/log", ended_run_id, token=nobody).status_code == 403
    report = f"reports/{DAG_ID}/{ended_run_id}/report.html"
    assert ask(stack, report, ended_run_id, token=nobody).status_code == 403
    assert ask(stack, "api/fleet", ended_run_id, token=nobody).status_code == 403
    assert ask(stack, "metrics", ended_run_id, token=nobody).status_code == 403


def test_prometheus_reads_the_runs_with_a_token(stack: LiveStack, ended_run_id: str) -> None:
    answer = ask(stack, "metrics", ended_run_id, token=token(stack))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(answer.text)}
    samples = families["trainyard_run_info"].samples
    assert ended_run_id in {each.labels["run_id"] for each in samples}


def test_a_run_that_there_is_not_is_not_found(stack: LiveStack, ended_run_id: str) -> None:
    answer = ask(stack, "api/run", f"no-{ended_run_id}", token=token(stack))
    assert answer.status_code == 404
    assert f"no-{ended_run_id}" in answer.json()["detail"]


@pytest.mark.slow
@needs_browser
def test_the_tab_shows_a_run_from_its_first_steps_to_its_report(
    stack: LiveStack, run_id: str, browser: WebDriver
) -> None:
    page = WebDriverWait(browser, EVENT_LIMIT_S)
    open_page(browser, stack, f"/dags/{DAG_ID}/runs/{run_id}/plugin/trainyard_training")

    page.until(condition.frame_to_be_available_and_switch_to_it((By.CSS_SELECTOR, "iframe")))
    chart = (By.CSS_SELECTOR, ".chart[aria-label*='loss']:not([aria-label*='no values']) canvas")
    page.until(condition.presence_of_element_located(chart), "no curve appeared")
    report = (By.LINK_TEXT, "Report")
    link = page.until(condition.presence_of_element_located(report), "no link to the report")

    body = (By.TAG_NAME, "body")
    page.until(condition.text_to_be_present_in_element(body, "succeeded"), "the run did not end")
    assert "step 20 of 20" in browser.find_element(*body).text
    shown = requests.get(
        str(link.get_attribute("href")),
        headers={"Authorization": f"Bearer {token(stack)}"},
        timeout=EVENT_LIMIT_S,
    )
    assert "<h1" in shown.text
    assert "sandbox" in shown.headers["Content-Security-Policy"]
    assert not [each for each in browser.get_log("browser") if "trainyard/app-" in each["message"]]


@pytest.mark.slow
def test_the_report_task_has_a_button_to_the_report(stack: LiveStack, run_id: str) -> None:
    stack.end_of(DAG_ID, run_id)
    links = requests.get(
        f"{stack.url}/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/report/links",
        headers={"Authorization": f"Bearer {token(stack)}"},
        timeout=EVENT_LIMIT_S,
    )
    address = links.json()["extra_links"]["Report"]
    answer = ask(stack, address.partition("/trainyard/")[2], run_id, token=token(stack))
    assert answer.status_code == 200


@pytest.mark.slow
@needs_browser
def test_the_fleet_page_lists_the_run_and_what_it_cost(
    stack: LiveStack, run_id: str, browser: WebDriver
) -> None:
    page = WebDriverWait(browser, EVENT_LIMIT_S)
    stack.end_of(DAG_ID, run_id)
    open_page(browser, stack, "/plugin/trainyard_fleet")

    page.until(condition.frame_to_be_available_and_switch_to_it((By.CSS_SELECTOR, "iframe")))
    row = page.until(
        condition.presence_of_element_located((By.XPATH, f"//tr[.//a[text()='{run_id}']]"))
    )

    assert "succeeded" in row.text
    assert "$" in row.text
    assert "test loss" in row.text
    row.find_element(By.LINK_TEXT, run_id).click()
    browser.switch_to.default_content()
    page.until(condition.url_contains("plugin/trainyard_training"), "the run's tab did not open")


@pytest.mark.slow
@needs_browser
def test_the_stop_button_ends_a_run_after_a_second_press(
    stack: LiveStack, browser: WebDriver
) -> None:
    stack.api.set_paused(DAG_ID, paused=False)
    run_id = stack.api.trigger(DAG_ID, conf=SMALL_RUN)
    page = WebDriverWait(browser, EVENT_LIMIT_S)
    open_page(browser, stack, f"/dags/{DAG_ID}/runs/{run_id}/plugin/trainyard_training")
    page.until(condition.frame_to_be_available_and_switch_to_it((By.CSS_SELECTOR, "iframe")))

    for label in ("Stop run", "Stop it"):
        button = (By.XPATH, f"//button[text()='{label}']")
        page.until(condition.element_to_be_clickable(button), f"no button {label}").click()

    stack.wait(lambda: stack.api.run(DAG_ID, run_id)["state"] == "failed", "the run's end")
