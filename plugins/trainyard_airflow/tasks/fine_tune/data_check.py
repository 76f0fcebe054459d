"""`CheckDataOperator`: check of a fine-tuning's data and of its models in S3 before anything is paid."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Context

    from trainyard.sharding.answer_survey import AnswerSurvey
    from trainyard.sharding.chat_template import ChatTemplate
    from trainyard.sharding.objects import Objects
    from trainyard.specs.script_conf import ScriptConf

_BYTES_OF = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_USUAL_DTYPE = "float32"
"""Assumed dtype if config.json has none."""


@retried_by_error
class CheckDataOperator(ConnectedOperator):
    """Reads training and validation data; returns their figures, and the estimated time and cost of the training.

    It reads at most `trainyard.sharding.answer_survey.MAX_READ_BYTES` of each prefix, row by row. It also
    checks whether the jobs' memory can hold the model, and whether a new adapter would have `base_model` as its
    base.
    """

    ui_color = "#fdf6e3"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def execute(self, context: Context) -> dict[str, Any]:
        """Return a mapping with the members `splits` (figures of each split, by its name) and `estimate`.

        Raises:
            SpecError: a model cannot be used, or there are invalid rows. The error lists the invalid rows by
                file and number.
        """
        conf = RunState.of_script(context).conf
        num_parameters = self._num_parameters(conf)
        if unusable := list(self._model_findings(conf, num_parameters)):
            raise SpecError(unusable, subject="run conf")
        surveys = self._surveys(conf)
        train = surveys["train"]
        for survey in surveys.values():
            survey.raise_errors()
            for warning in survey.warnings(max_length=conf.hyperparameters["max_length"]):
                self.log.warning("%s", warning)
        estimate = self._estimate(conf, train, num_parameters)
        splits = {name: each.to_dict() for name, each in surveys.items()}
        self.log.info("Data: %s", json.dumps(splits))
        return {"splits": splits, "estimate": estimate}

    def _model_findings(self, conf: ScriptConf, num_parameters: float | None) -> Iterator[Finding]:
        """Yield an error if the jobs' memory cannot hold the model, or if a new adapter has a wrong base.

        The base of a new adapter must be `base_model`. If `init_from` is a whole model, the adapter would be
        trained on that model instead, which is an error.
        """
        from trainyard.planning.fine_tune_memory import memory_findings  # a DAG file imports this
        from trainyard.sharding.stored_model import is_adapter

        if num_parameters is not None:
            yield from memory_findings(conf, num_parameters)
        start = conf.inputs.get("init")
        makes_adapter = conf.hyperparameters["artifact"] == "adapter"
        if start and makes_adapter and is_adapter(self._stored, start) is False:
            yield Finding(
                where="init_from",
                what="has a whole model, so base_model is not the base of the adapter that the run would leave",
                got=f'{start}, with artifact "adapter"',
                next_step='set base_model to this address, and remove init_from; or set artifact to "merged"',
            )

    def _surveys(self, conf: ScriptConf) -> dict[str, AnswerSurvey]:
        from trainyard.sharding.answer_survey import AnswerSurvey  # a DAG file imports this module

        template = self._template(conf)
        made = {
            name: AnswerSurvey(
                uri=conf.inputs[name], method=conf.hyperparameters["method"], template=template
            )
            for name in ("train", "validation")
            if name in conf.inputs
        }
        for survey in made.values():
            survey.read(self._stored)
        return made

    def _template(self, conf: ScriptConf) -> ChatTemplate | None:
        """Return the chat template of the tokenizer that the job will load; None if it cannot be read here."""
        from jinja2 import TemplateError  # as above

        from trainyard.sharding.chat_template import ChatTemplate

        prefixes = [conf.inputs[name] for name in ("init", "model") if name in conf.inputs]
        try:
            template = ChatTemplate.of_model(self._stored, prefixes)
        except (TemplateError, ValueError) as error:
            self.log.warning("The chat template of %s cannot be read: %s", prefixes, error)
            return None
        if template is None:
            self.log.warning(
                "No tokenizer is readable in S3: only the job checks the chat template"
            )
        return template

    def _estimate(
        self, conf: ScriptConf, train: AnswerSurvey, num_parameters: float | None
    ) -> dict[str, Any]:
        from trainyard.planning.fine_tune_estimate import estimate_fine_tune  # as above
        from trainyard.units import format_duration, format_usd

        estimate = estimate_fine_tune(
            conf,
            num_rows=train.estimated_rows,
            num_tokens=train.estimated_tokens,
            num_parameters=num_parameters,
        )
        seconds = None if estimate.hours is None else estimate.hours * 3600
        self.log.info(
            "Estimated: %s steps, %s tokens, %s, %s",
            f"{estimate.num_steps:,}",
            f"{estimate.num_tokens:,}",
            "hours unknown" if seconds is None else format_duration(seconds),
            format_usd(estimate.cost_usd),
        )
        if seconds is not None and seconds > conf.max_run_s:
            self.log.warning(
                "The training is expected to take %s, longer than max_run_s %d: raise it, or lower epochs or max_steps",
                format_duration(seconds),
                conf.max_run_s,
            )
        return {**estimate.to_dict(), "num_parameters": num_parameters}

    def _num_parameters(self, conf: ScriptConf) -> float | None:
        """Return the base model's number of parameters, from the size of its safetensors files in S3.

        The result is None if the run has no input `model`, or if the input has no such files. Only the files that
        `save_pretrained` of Transformers writes are counted, because some models have further files with the same
        weights.
        """
        prefix = conf.inputs.get("model")
        if prefix is None:
            return None
        heads = list(self._stored.list(prefix))
        configs = [each.uri for each in heads if each.uri.endswith("/config.json")]
        place = min(configs, key=len, default="").removesuffix("config.json")
        own = re.compile(re.escape(place) + r"model[^/]*\.safetensors")
        size = sum(each.size for each in heads if own.fullmatch(each.uri))
        if not size:
            return None
        config = json.loads(self.objects.read(f"{place}config.json"))
        dtype = config.get("dtype") or config.get("torch_dtype") or _USUAL_DTYPE
        return size / _BYTES_OF.get(str(dtype), _BYTES_OF[_USUAL_DTYPE])

    @property
    def _stored(self) -> Objects:
        """Reader of S3 objects, for the checks of the data and the models."""
        from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects

        return S3DatasetObjects(self.clients.client("s3"))
