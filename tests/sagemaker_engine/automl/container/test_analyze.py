"""The look at the data: formats, splits, weights and the feature specification."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from sagemaker_automl_container import analyze, places
from sagemaker_automl_container.columns import TableError
from sagemaker_automl_container.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 520


def table() -> pd.DataFrame:
    """Return a table of 520 rows, two of them without a target, one with a weight that is none."""
    frame = pd.DataFrame(
        {
            "size": [number / 3 for number in range(ROWS)],
            "color": ["red", "blue"] * (ROWS // 2),
            "weight": [-1.0, *[1.0] * (ROWS - 1)],
            "kept": ["yes", "no"] * (ROWS // 2),
        }
    )
    frame.loc[[5, 7], "kept"] = None
    return frame


@pytest.fixture
def analyzed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A way to run the analysis over files of channels; it returns the tables and the message."""
    monkeypatch.setattr(places, "ML", tmp_path)
    monkeypatch.setattr(places, "PROCESSING", tmp_path / "processing")

    def run(files: dict[str, bytes], **arguments: str) -> tuple[Tables, dict[str, Any]]:
        for name, content in files.items():
            path = tmp_path / "processing" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        given = {"target": "kept", "seed": "7", "training": "csv", **arguments}
        monkeypatch.setattr(sys, "argv", ["analyze", *(t for p in given.items() for t in p)])
        analyze.main()
        message = json.loads((tmp_path / "output" / "message").read_text())
        return Tables.read(tmp_path / "processing" / "prepared"), message

    return run


def csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def test_small_table_is_cross_validated_and_rows_without_a_target_left_out(analyzed: Any) -> None:
    tables, message = analyzed({"training/a.csv": csv(table())})
    assert (len(tables.train), tables.validation) == (518, None)
    assert message == {
        "problem_type": "BinaryClassification",
        "num_rows": 518,
        "num_validation_rows": 0,
        "num_columns": 3,
        "num_folds": 5,
        "num_bytes": message["num_bytes"],
    }
    assert len(list(tables.folds())) == 5


def test_fraction_holds_rows_out_with_the_classes_shares(analyzed: Any) -> None:
    tables, message = analyzed({"training/a.csv": csv(table())}, validation_fraction="0.25")
    assert (message["num_rows"], message["num_validation_rows"]) == (388, 130)
    assert abs((tables.judged["kept"] == "yes").mean() - 0.5) < 0.05
    assert tables.schema["num_folds"] == 0


def test_validation_channel_is_what_candidates_are_judged_by(analyzed: Any) -> None:
    held_out = table().head(40)
    files = {"training/a.csv": csv(table()), "validation/v.csv": csv(held_out)}
    tables, _ = analyzed(files, validation="csv")
    assert (len(tables.train), len(tables.judged)) == (518, 38)
    with pytest.raises(TableError, match=r"lacks the columns \['color'\]"):
        analyzed(
            {
                "training/a.csv": csv(table()),
                "validation/v.csv": csv(table().drop(columns="color")),
            },
            validation="csv",
        )


def test_rows_without_a_valid_weight_are_left_out(analyzed: Any) -> None:
    tables, _ = analyzed({"training/a.csv": csv(table())}, weight="weight")
    assert len(tables.train) == 517
    assert tables.weights is not None
    assert set(tables.weights) == {1.0}
    assert "weight" not in [each["name"] for each in tables.schema["columns"]]


def test_gzip_and_parquet_are_read_as_csv_is(analyzed: Any, tmp_path: Path) -> None:
    plain, _ = analyzed({"training/a.csv": csv(table())})
    (tmp_path / "processing" / "training" / "a.csv").unlink()
    packed, _ = analyzed({"training/a": gzip.compress(csv(table()))}, training="csv.gz")
    assert packed.schema == plain.schema
    (tmp_path / "processing" / "training" / "a").unlink()
    table().to_parquet(tmp_path / "t.parquet")
    typed, _ = analyzed(
        {"training/a.parquet": (tmp_path / "t.parquet").read_bytes()}, training="parquet"
    )
    kinds = {each["name"]: each["kind"] for each in typed.schema["columns"]}
    assert kinds == {each["name"]: each["kind"] for each in plain.schema["columns"]}


def test_several_files_are_one_table_if_their_headers_agree(analyzed: Any) -> None:
    halves = {"training/1.csv": csv(table().head(260)), "training/2.csv": csv(table().tail(260))}
    tables, _ = analyzed(halves)
    assert len(tables.train) == 518
    with pytest.raises(TableError, match=r"The header of 3\.csv differs"):
        analyzed({**halves, "training/3.csv": b"other\n1\n"})


def test_feature_specification_chooses_columns_and_types(analyzed: Any) -> None:
    wish = {"FeatureAttributeNames": ["size"], "FeatureDataTypes": {"size": "categorical"}}
    files = {"training/a.csv": csv(table()), "features/f.json": json.dumps(wish).encode()}
    tables, _ = analyzed(files)
    assert [(each["name"], each["kind"]) for each in tables.schema["columns"]] == [
        ("size", "categorical")
    ]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        pytest.param(b"no json", "is not a JSON object", id="no json"),
        pytest.param(
            b'{"FeatureDataTypes": {"size": "image"}}', r"unknown types \['image'\]", id="type"
        ),
        pytest.param(b'{"FeatureAttributeNames": 5}', "a list of column names", id="names"),
        pytest.param(b'{"FeatureAttributeNames": "abc"}', "a list of column names", id="text"),
        pytest.param(b'{"FeatureDataTypes": {"a": [1]}}', "type by column name", id="type list"),
        pytest.param(b"[1]", "must be a JSON object", id="list"),
        pytest.param(b'{"FeatureAttributeNames": ["kept"]}', "must not be among", id="target"),
        pytest.param(b'{"FeatureAttributeNames": ["nobody"]}', "'nobody' is not in", id="column"),
    ],
)
def test_feature_specification_that_cannot_be_met_is_refused(
    analyzed: Any, wish: bytes, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        analyzed({"training/a.csv": csv(table()), "features/f.json": wish})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "no rows", id="empty"),
        pytest.param(b'a,b\n"1', "cannot be read as a table", id="broken"),
        pytest.param(b"size,kept\n" + b"1,x\n2,x\n" * 300, "does not fit", id="one class"),
        pytest.param(csv(table().head(501)), "499 rows with a target; at least 500", id="few rows"),
    ],
)
def test_table_that_cannot_be_read_is_refused(analyzed: Any, content: bytes, message: str) -> None:
    with pytest.raises(TableError, match=message):
        analyzed({"training/a.csv": content}, problem_type="BinaryClassification")


def test_regression_wants_numbers(analyzed: Any) -> None:
    with pytest.raises(TableError, match="'kept' of a regression has values that are not numbers"):
        analyzed({"training/a.csv": csv(table())}, problem_type="Regression")
