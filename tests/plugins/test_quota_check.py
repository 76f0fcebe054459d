"""Preflight asks Service Quotas, on a live engine, before anything is paid."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from include.planning.quota_needs import LONGEST_RUN
from tests.local_engine.faults.putting import faults
from tests.plugins.test_preflight import preflight, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

TRAINING = "ml.m5.large for training job usage"


@pytest.fixture
def quotas(engine: Any) -> Iterator[Any]:
    """Set quotas; the defaults come back at the end."""

    def put(document: Any, method: str = "PUT") -> None:
        url, data = f"{engine.endpoint_url}/_engine/quotas", json.dumps(document).encode()
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310  # loopback
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310  # loopback

    yield put
    put({}, "DELETE")


def test_spot_instances_that_the_account_may_not_have_are_refused(aws_connection, task):
    message = refusal(
        task,
        instance_type="ml.g5.xlarge",
        instance_count=2,
        use_spot_instances=True,
        max_wait_s=7200,
    )

    assert "instance_type: needs more than the account's quota" in message
    assert "2 of 'ml.g5.xlarge for spot training job usage'" in message
    assert "at most 0 in us-east-1" in message


def test_all_quotas_that_are_too_small_are_told_at_once(aws_connection, task, quotas):
    quotas({"*": {TRAINING: 1, LONGEST_RUN: 60, "ml.m5.* for processing job usage": 0}})

    message = refusal(task, instance_count=2, global_batch_size=16)

    for where in ("instance_type", "max_run_s", "evaluation_instance_type"):
        assert f"{where}: needs more than the account's quota" in message


def test_a_rung_without_quota_is_warned_of_while_another_fits(aws_connection, task, quotas):
    ladder = [
        {"instance_type": "ml.m5.large", "use_spot_instances": True, "max_wait_s": 60},
        {"instance_type": "ml.m5.large", "use_spot_instances": False},
    ]
    quotas({"*": {"ml.m5.large for spot training job usage": 0}})

    warnings = preflight(task, capacity_ladder=ladder, max_wait_s=7200)["plan"]["warnings"]
    assert any("capacity_ladder[0]: needs more than" in each for each in warnings)

    quotas({"*": {"ml.m5.large *training job usage": 0, "ml.m5.large for training job usage": 0}})
    message = refusal(task, capacity_ladder=ladder, max_wait_s=7200)
    assert "capacity_ladder[1]: needs more than" in message


def test_quotas_that_nobody_may_read_are_a_warning(aws_connection, engine, task):
    denied = {"operation": "ListServiceQuotas", "code": "AccessDeniedException", "status": 400}
    with faults(engine.endpoint_url, {"what": "throttle", **denied}):
        warnings = preflight(task)["plan"]["warnings"]

    assert any("service quotas: cannot be looked at" in each for each in warnings)
