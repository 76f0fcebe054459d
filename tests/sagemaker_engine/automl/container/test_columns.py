"""What the columns of a table are taken for, and which tables cannot be learned from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sagemaker_automl_container.columns import (
    TableError,
    Wishes,
    classes_of,
    problem_of,
    schema_of,
)

ROWS = 60


def table(**columns: object) -> pd.DataFrame:
    """Return a table of 60 rows as a CSV's reader gives it: every value is text."""
    numbers = range(ROWS)
    made = {
        "y": ["no", "yes"] * (ROWS // 2),
        "x": [f"{number / 7:.3f}" for number in numbers],
        **columns,
    }
    return pd.DataFrame(made)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        pytest.param(["a", "b"] * 30, "BinaryClassification", id="two texts"),
        pytest.param(["0", "1"] * 30, "BinaryClassification", id="two numbers"),
        pytest.param(["a", "b", "c"] * 20, "MulticlassClassification", id="three texts"),
        pytest.param(["1", "2", "3"] * 20, "MulticlassClassification", id="few whole numbers"),
        pytest.param([str(n) for n in range(60)], "Regression", id="many whole numbers"),
        pytest.param(["0.5", "1.0", "2.0"] * 20, "Regression", id="fractions"),
        pytest.param([f"t{n % 20}" for n in range(60)], "MulticlassClassification", id="20 texts"),
    ],
)
def test_problem_follows_the_target(values: list[str], problem: str) -> None:
    assert problem_of(pd.Series(values)) == problem


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param([str(n) for n in range(ROWS)], "numeric", id="numbers"),
        pytest.param(["?", *map(str, range(1, ROWS))][:ROWS], "numeric", id="a stray mark"),
        pytest.param(["red", "blue"] * 30, "categorical", id="names"),
        pytest.param([f"2026-01-{n % 28 + 1:02d}" for n in range(ROWS)], "datetime", id="dates"),
        pytest.param([f"the order {n} came too late" for n in range(ROWS)], "text", id="sentences"),
    ],
)
def test_kind_follows_the_values(values: list[str], kind: str) -> None:
    (column,) = [
        each
        for each in schema_of(table(c=values), Wishes(target="y"))["columns"]
        if each["name"] == "c"
    ]
    assert column["kind"] == kind


def test_keys_and_constants_are_left_out_with_a_reason() -> None:
    made = table(key=[f"k{n}" for n in range(ROWS)], same=["a"] * ROWS)
    dropped = {
        each["name"]: each["reason"] for each in schema_of(made, Wishes(target="y"))["dropped"]
    }
    assert dropped == {
        "key": "every row has another value, as in a key",
        "same": "it has fewer than two values",
    }


def test_specification_decides_on_columns_and_kinds() -> None:
    made = table(code=["1", "2", "3"] * 20, other=["a", "b"] * 30)
    wishes = Wishes(target="y", only=("code",), types={"code": "categorical"})
    (column,) = schema_of(made, wishes)["columns"]
    assert (column["name"], column["kind"]) == ("code", "categorical")


def test_numbers_are_ordered_as_numbers_and_the_last_of_two_is_positive() -> None:
    assert classes_of(pd.Series(["10", "9", "10", "9"]), "BinaryClassification") == ["9", "10"]
    assert classes_of(pd.Series(["yes", "no"] * 2), "BinaryClassification") == ["no", "yes"]


@pytest.mark.parametrize(
    ("made", "wishes", "message"),
    [
        pytest.param(
            table(),
            Wishes(target="z"),
            "'z' is not in the header .* it has 'y', 'x'",
            id="no target",
        ),
        pytest.param(
            table(), Wishes(target="y", weight="w"), "'w' is not in the header", id="no weight"
        ),
        pytest.param(
            table(y=["a", "b", "c"] * 20),
            Wishes(target="y", problem_type="BinaryClassification"),
            "3 different values, which does not fit",
            id="three classes of two",
        ),
        pytest.param(
            table(y=["a"] + ["b"] * 59),
            Wishes(target="y"),
            r"fewer: 'a' \(1 of 2\)",
            id="class of one",
        ),
        pytest.param(
            pd.DataFrame({"y": ["a", "b"] * 30, "x": ["1"] * ROWS}),
            Wishes(target="y"),
            "nothing to learn from",
            id="no useful column",
        ),
    ],
)
def test_table_that_cannot_be_learned_from_is_refused(
    made: pd.DataFrame, wishes: Wishes, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        schema_of(made, wishes)


def test_gaps_do_not_count_as_values() -> None:
    made = table(c=[np.nan, "1", "2"] * 20)
    (column,) = [
        each for each in schema_of(made, Wishes(target="y"))["columns"] if each["name"] == "c"
    ]
    assert (column["num_values"], column["num_missing"]) == (2, 20)
