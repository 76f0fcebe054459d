"""Algorithm mode: XGBoost training from hyperparameters and channels, without a script.

Source: "XGBoost algorithm with Amazon SageMaker AI" in the Developer Guide, and AWS's container (June 2026).
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_xgboost_container.collective import cluster, hosts_with_data
from sagemaker_xgboost_container.data import check_channels, content_type, read_matrix
from sagemaker_xgboost_container.errors import UserError
from sagemaker_xgboost_container.hyperparameters import read_hyperparameters
from sagemaker_xgboost_container.metrics import MAXIMIZED, split_metrics
from sagemaker_xgboost_container.statistics import StatisticsFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_training.environment import Environment

log = logging.getLogger(__name__)

MODEL = "xgboost-model"
TAB = "#011"
"""A tab as CloudWatch shows it; AWS's own metric definitions match it."""
TREES_EVERY = 10
TRAINING_PORT = 9100
CHECKPOINT = "xgboost-checkpoint"
NUM_KEPT = 5
_CHECKPOINT_FILE = re.compile(rf"{CHECKPOINT}\.(\d+)")


def train(environment: Environment) -> None:
    """Train with the hyperparameters and channels of this container, and save the model.

    Raises:
        UserError: A hyperparameter, a channel or the data is invalid.
    """
    config = Path(environment.input_config_dir)
    values = read_hyperparameters(_document(config / "hyperparameters.json"))
    channels = _document(config / "inputdataconfig.json")
    check_channels(channels)
    kind = content_type(channels["train"].get("ContentType"))
    folders = {name: Path(path) for name, path in environment.channel_input_dirs.items()}
    has_weights = values.pop("csv_weights", 0) == 1
    train_data = read_matrix(folders["train"], kind, has_weights=has_weights)
    validation = None
    if "validation" in channels:
        validation = read_matrix(folders["validation"], kind, has_weights=has_weights)
    is_whole = train_data is not None and ("validation" not in channels or validation is not None)
    hosts, host = list(environment.hosts), environment.current_host
    if len(hosts) == 1 and not is_whole:
        missing = "train" if train_data is None else "validation"
        raise UserError(f"No data in {missing} channel path {folders[missing]}")
    taking_part = hosts_with_data(hosts, host, has_data=is_whole)
    if not taking_part:
        raise UserError("No hosts received training data.")
    if host not in taking_part:
        log.warning("Host %s not being used for distributed training: it has no data.", host)
        return
    with cluster(taking_part, host, port=TRAINING_PORT) as is_first:
        BoostedTraining(environment, values, is_first=is_first, num_hosts=len(taking_part)).run(
            train_data, validation, rank=taking_part.index(host)
        )


class BoostedTraining:
    """One training on one host; only the first host saves the model."""

    def __init__(
        self, environment: Environment, values: dict[str, Any], *, is_first: bool, num_hosts: int
    ) -> None:
        """Separate the container's own settings from XGBoost's parameters."""
        self._environment = environment
        self._is_first, self._num_hosts = is_first, num_hosts
        self._model_folder = Path(environment.model_dir)
        self._num_round = values.pop("num_round")
        self._early_stopping_rounds = values.pop("early_stopping_rounds", None)
        self._saves_each_round = values.pop("save_model_on_termination", "false") == "true"
        objective_metric = values.pop("_tuning_objective_metric", None)
        wanted = values.pop("eval_metric", [])
        if objective_metric is not None:
            metric = objective_metric.rpartition(":")[2]
            wanted = [*(each for each in wanted if each != metric), metric]
        values.pop("use_dask_gpu_training", None)
        values.pop("predictor", None)
        values.pop("dsplit", None)
        if "updater" in values:
            values["updater"] = ",".join(values["updater"])
        self._metrics = wanted
        own, self._custom = split_metrics(wanted)
        self._parameters = {**values, "eval_metric": own} if own else values
        if not own and wanted:
            self._parameters["disable_default_eval_metric"] = 1
        place = self._checkpoint_folder()
        self._checkpoints = Checkpoints(folder=place) if place else None

    def run(self, train_data: Any, validation: Any | None, *, rank: int) -> None:
        """Train from the newest checkpoint to the last round.

        Raises:
            UserError: XGBoost rejects the data or the parameters.
        """
        import xgboost as xgb

        log.info(
            "Train matrix has %s rows and %s columns", train_data.num_row(), train_data.num_col()
        )
        checkpoint, done = self._checkpoints.newest() if self._checkpoints else (None, 0)
        watched = [(train_data, "train")]
        if validation is not None:
            log.info("Validation matrix has %s rows", validation.num_row())
            watched.append((validation, "validation"))
        if checkpoint is not None:
            log.info("Checkpoint loaded from %s", checkpoint)
            log.info("Resuming from iteration %s", done)
        statistics = StatisticsFile(
            self._statistics_folder(),
            rank=rank,
            world_size=self._num_hosts,
            host=self._environment.current_host,
            resumed_at=done,
            max_steps=self._num_round,
        )
        if self._saves_each_round and self._is_first:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        try:
            model = xgb.train(
                self._parameters,
                train_data,
                num_boost_round=max(0, self._num_round - done),
                evals=watched,
                custom_metric=self._custom,
                xgb_model=None if checkpoint is None else bytearray(checkpoint.read_bytes()),
                verbose_eval=False,
                callbacks=self._callbacks(statistics, has_validation=validation is not None),
            )
        except xgb.core.XGBoostError as error:
            text = str(error).partition("\nStack trace:")[0]
            raise UserError(f"XGB train call failed with exception:\n {text}") from error
        statistics.mark(model.num_boosted_rounds(), "done")
        statistics.close()
        if self._is_first:
            self._model_folder.mkdir(parents=True, exist_ok=True)
            save_model(model, self._model_folder / MODEL)

    def _callbacks(self, statistics: StatisticsFile, *, has_validation: bool) -> list[Any]:
        import xgboost as xgb

        callbacks: list[Any] = [_after_each_round(self, statistics)]
        if self._early_stopping_rounds and has_validation and self._metrics:
            metric = self._metrics[-1]
            callbacks.append(
                xgb.callback.EarlyStopping(
                    rounds=self._early_stopping_rounds,
                    data_name="validation",
                    metric_name=metric,
                    maximize=metric.partition("@")[0] in MAXIMIZED,
                    save_best=True,
                )
            )
        return callbacks

    def after_round(
        self,
        model: Any,
        scores: Mapping[str, Mapping[str, list[float]]],
        statistics: StatisticsFile,
        *,
        seconds: float,
    ) -> None:
        """Print the metrics of the last round, save checkpoint and model if configured, and write statistics."""
        number = model.num_boosted_rounds()
        last = {
            (data, name): values[-1]
            for data, each in scores.items()
            for name, values in each.items()
        }
        if self._is_first:
            fields = [f"{data}-{name}:{value:.5f}" for (data, name), value in last.items()]
            print(TAB.join([f"[{number - 1}]", *fields]), flush=True)  # noqa: T201  # the metrics are read off it
        losses = {data: value for (data, name), value in last.items() if _is_loss(name)}
        statistics.round(number, loss=losses.get("train"), seconds=seconds)
        if "validation" in losses:
            statistics.validation(number, loss=losses["validation"])
        is_due = number % TREES_EVERY == 0 or number == self._num_round
        if is_due and self._parameters.get("booster") != "gblinear":
            statistics.trees(number, model)
        if self._checkpoints and self._is_first:
            self._checkpoints.save(model, number - 1)
        if self._saves_each_round and self._is_first:
            self._model_folder.mkdir(parents=True, exist_ok=True)
            save_model(model, self._model_folder / MODEL)

    def _checkpoint_folder(self) -> Path | None:
        config = _document(Path(self._environment.input_config_dir) / "checkpointconfig.json")
        return _inside(config["LocalPath"]) if "LocalPath" in config else None

    def _statistics_folder(self) -> Path:
        hook = _document(Path(self._environment.input_config_dir) / "debughookconfig.json")
        if "LocalPath" in hook:
            return _inside(hook["LocalPath"])
        kept = self._checkpoint_folder()
        if kept is not None:
            return kept / "statistics"
        return Path(self._environment.output_data_dir) / "statistics"


def _after_each_round(training: BoostedTraining, statistics: StatisticsFile) -> Any:
    import xgboost as xgb

    class AfterEachRound(xgb.callback.TrainingCallback):  # type: ignore[misc]  # its base ships no types
        """Callback that calls `BoostedTraining.after_round`."""

        began = time.monotonic()

        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002  # the interface
            """Record the start time of the round; return False, so that the training continues."""
            self.began = time.monotonic()
            return False

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002  # the interface
            """Call `after_round`; return False, so that the training continues."""
            seconds = time.monotonic() - self.began
            training.after_round(model, evals_log, statistics, seconds=seconds)
            return False

    return AfterEachRound()


def _inside(path: str) -> Path:
    """Return the actual path of a file under /opt/ml.

    If the engine cannot mount /opt/ml, the folder is at $SAGEMAKER_BASE_DIR instead.
    """
    base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
    return Path(path.replace("/opt/ml", base, 1))


def _is_loss(metric: str) -> bool:
    return metric.partition("@")[0] not in MAXIMIZED


def _document(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints in one folder: one file per round, `xgboost-checkpoint.<round>`; the newest five are kept."""

    folder: Path

    def newest(self) -> tuple[Path | None, int]:
        """Return (newest checkpoint, number of rounds in it), or (None, 0) if there is none."""
        rounds = self._rounds()
        if not rounds:
            return None, 0
        return self.folder / f"{CHECKPOINT}.{rounds[-1]}", rounds[-1] + 1

    def save(self, model: Any, round_number: int) -> None:
        """Save the model after this round (counted from 0), and remove all but the newest `NUM_KEPT` checkpoints."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_model(model, self.folder / f"{CHECKPOINT}.{round_number}")
        for old in self._rounds()[:-NUM_KEPT]:
            (self.folder / f"{CHECKPOINT}.{old}").unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        if not self.folder.exists():
            return []
        found = (_CHECKPOINT_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)


def save_model(model: Any, path: Path) -> None:
    """Write a model in XGBoost's UBJSON format. Readers never see an incomplete file."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(model.save_raw("ubj"))
    beside.replace(path)
