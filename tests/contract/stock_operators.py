"""Runs the provider's stock SageMaker operators in a process of their own, as a worker would.

Started by test_stock_operators with one JSON argument: name -> [operator class, keyword arguments].
Prints one JSON object: name -> {"returned": ...} or {"raised": text}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.providers.amazon.aws.operators import sagemaker


def run(operator_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what executing one operator came to."""
    operator = getattr(sagemaker, operator_name)(
        task_id="stock", aws_conn_id="aws_engine", deferrable=False, **arguments
    )
    try:
        return {"returned": operator.execute(context={})}
    except Exception as error:  # noqa: BLE001  # Whatever it raises is the result.
        return {"raised": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    cases = json.loads(sys.argv[1])
    results = {name: run(*case) for name, case in cases.items()}
    sys.stdout.write("\nRESULTS " + json.dumps(results, default=str) + "\n")
