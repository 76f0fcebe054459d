"""`TaskId`: the ids of the tasks of Trainyard's DAGs, in Airflow, its REST API and reports."""

from __future__ import annotations

from enum import StrEnum


class TaskId(StrEnum):
    """Task ids of the DAGs. A step of several DAGs, such as `train`, has one id in all of them."""

    PREFLIGHT = "preflight"
    CHECK_DATA = "check_data"
    SHARD = "shard"
    SMOKE_TEST = "smoke_test"
    TUNE = "tune"
    TRAIN = "train"
    WATCH_RULES = "watch_rules"
    EVALUATE = "evaluate"
    REGISTER = "register"
    SET_UP_MONITORING = "set_up_monitoring"
    TEAR_DOWN_MONITORING = "tear_down_monitoring"
    REPORT = "report"
    OUTCOME = "outcome"
    PLAN = "plan"
    CELLS = "cells"
    PREPARE = "prepare"
    SEARCH = "search"
