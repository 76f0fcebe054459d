"""What the XGBoost image checks before it trains, in the words of AWS's container; without the image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.images.xgboost_metrics import definitions, implied_metrics
from sagemaker_xgboost_container.algorithm import NUM_KEPT, Checkpoints
from sagemaker_xgboost_container.data import check_channels, content_type, read_libsvm
from sagemaker_xgboost_container.errors import UserError
from sagemaker_xgboost_container.hyperparameters import read_hyperparameters
from sagemaker_xgboost_container.statistics import StatisticsFile
from trainyard.rules.records import MarkRecord, Start, StepRecord, Validation
from trainyard.rules.statistics_file import read_statistics

if TYPE_CHECKING:
    from pathlib import Path

FILE = {"TrainingInputMode": "File"}


class TreeModel:
    """Stands for a booster that can be saved."""

    def save_raw(self, kind: str) -> bytes:
        return kind.encode()


def test_hyperparameters_are_read_by_type_and_first_name() -> None:
    given = {"num_round": "10", "learning_rate": "0.3", "eval_metric": "rmse,mae", "seed": "7"}

    assert read_hyperparameters(given) == {
        "num_round": 10,
        "eta": 0.3,
        "eval_metric": ["rmse", "mae"],
        "seed": 7,
    }


def test_a_list_that_is_not_json_is_the_users_error() -> None:
    with pytest.raises(UserError, match=r"eval_metric: could not parse value '\[rmse'"):
        read_hyperparameters({"num_round": "10", "eval_metric": "[rmse"})


def test_the_old_name_of_squared_error_is_the_new_one() -> None:
    values = read_hyperparameters({"num_round": "10", "objective": "reg:linear"})

    assert values["objective"] == "reg:squarederror"


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        pytest.param("1 0:2 3:4\n0 1:5\n", None, id="none"),
        pytest.param("1:0.5 0:2\n0 1:5 # a comment\n", [0.5, 1.0], id="one row"),
    ],
)
def test_libsvm_has_weights_only_if_a_row_gives_one(
    text: str, weights: list[float] | None, tmp_path: Path
) -> None:
    (tmp_path / "part").write_text(text)

    rows = read_libsvm([tmp_path / "part"])

    assert (rows.labels, rows.weights) == ([1.0, 0.0], weights)
    assert rows.features[1, 1] == 5


def test_script_mode_has_the_modules_that_public_scripts_import() -> None:
    from sagemaker_containers.environment import Environment

    from sagemaker_containers import entry_point  # noqa: F401  # its import is the test
    from sagemaker_xgboost_container.distributed import rabit_run

    seen: list[dict[str, object]] = []
    rabit_run(
        exec_fun=lambda **given: seen.append(given),
        args={"rounds": 3},
        include_in_training=True,
        hosts=["algo-1"],
        current_host="algo-1",
        update_rabit_args=True,
    )

    assert seen == [{"rounds": 3, "is_master": True}]
    assert Environment.__module__ == "sagemaker_training.environment"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"eta": "1.5"}, r"eta: value 1\.5 not in range \[0, 1\]", id="range"),
        pytest.param({"subsample": "0"}, r"not in range \(0, 1\]", id="open-end"),
        pytest.param({"max_depth": "2.5"}, "could not parse value '2.5'", id="not-whole"),
        pytest.param({"max_depht": "2"}, "Extraneous hyperparameter found: max_depht", id="typo"),
        pytest.param({"objective": "reg:square"}, "reg:square is not in", id="choice"),
        pytest.param({"objective": "multi:softmax"}, "Require input for parameter", id="classes"),
        pytest.param({"num_class": "3"}, "Do not need to setup parameter", id="no-classes"),
        pytest.param({"eval_metric": "auc"}, "only be applied for classification", id="auc"),
        pytest.param({"tree_method": "gpu_hist"}, "need a GPU", id="gpu"),
        pytest.param(
            {"_kfold": "5"}, "cross validation is not supported by this engine image", id="folds"
        ),
    ],
)
def test_hyperparameters_that_cannot_be_are_told(more: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_hyperparameters({"num_round": "10", **more})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        pytest.param(None, "libsvm", id="default"),
        pytest.param("text/csv; label_size=1", "csv", id="csv"),
        pytest.param("text/x-libsvm", "libsvm", id="libsvm"),
        pytest.param("application/x-parquet", "parquet", id="parquet"),
    ],
)
def test_content_types_are_known_by_all_their_names(given: str | None, kind: str) -> None:
    assert content_type(given) == kind


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("text/csv;label_size=0", "label_size must be equal to 1", id="labels"),
        pytest.param("image/png", "is not an accepted ContentType", id="other"),
        pytest.param(
            "application/x-recordio-protobuf", "use csv, libsvm or parquet", id="recordio"
        ),
    ],
)
def test_content_types_that_are_not_read_are_told(given: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        content_type(given)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param({"validation": FILE}, "Missing required channel: train", id="no-train"),
        pytest.param({"train": FILE, "test": FILE}, "Extraneous channel found: test", id="other"),
        pytest.param({"train": {"TrainingInputMode": "Pipe"}}, "no longer supported", id="pipe"),
    ],
)
def test_channels_that_cannot_be_are_told(config: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_channels(config)


def test_the_newest_checkpoints_stay_and_the_newest_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(folder=tmp_path / "checkpoints")
    assert checkpoints.newest() == (None, 0)

    for number in range(12):
        checkpoints.save(TreeModel(), number)

    path, done = checkpoints.newest()
    assert (path.name, done) == ("xgboost-checkpoint.11", 12)
    assert len(list(checkpoints.folder.iterdir())) == NUM_KEPT


def test_statistics_are_what_the_rules_read_and_each_start_has_its_own_file(tmp_path: Path) -> None:
    for resumed_at in (0, 1):
        file = StatisticsFile(
            tmp_path, rank=0, world_size=2, host="algo-1", resumed_at=resumed_at, max_steps=2
        )
        file.round(resumed_at + 1, loss=float("nan"), seconds=0.1)
        file.validation(resumed_at + 1, loss=0.5)
        file.mark(resumed_at + 1, "done")
        file.close()

    texts = {each.name: each.read_text().splitlines(keepends=True) for each in tmp_path.iterdir()}
    kinds = [type(each) for each in read_statistics(texts)]
    assert kinds == [Start, StepRecord, Validation, MarkRecord] * 2


def test_the_service_s_metric_definitions_find_what_is_printed() -> None:
    line = "[7]#011train-rmse:0.50000#011validation-rmse:1.25e-2"
    found = {
        each["Name"]: float(match[1])
        for each in definitions()
        if (match := re.search(each["Regex"], line))
    }

    assert found == {"train:rmse": 0.5, "validation:rmse": 0.0125}


@pytest.mark.parametrize(
    ("image", "is_implied"),
    [
        pytest.param("1.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", True, id="its"),
        pytest.param("1.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0", False, id="other"),
    ],
)
def test_a_search_need_not_define_the_algorithm_s_own_metrics(image: str, is_implied: bool) -> None:
    assert ("validation:rmse" in implied_metrics(image)) is is_implied
