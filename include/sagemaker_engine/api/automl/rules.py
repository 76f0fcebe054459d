"""Rules of CreateAutoMLJobV2 that the service model cannot express, in the order of their evaluation.

Messages about the service's rules use the wording of the API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.request_rules import duplicate_tags
from sagemaker_engine.automl.plan import METRICS, Mode, Problem, chosen_algorithms
from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Request = dict[str, Any]

CONTENT_TYPES = frozenset({"text/csv;header=present", "x-application/vnd.amazon+parquet"})
ALGORITHMS = {
    Mode.TUNING: frozenset({"linear-learner", "mlp", "xgboost"}),
    Mode.ENSEMBLING: frozenset(
        {
            *("catboost", "extra-trees", "fastai", "lightgbm", "linear-learner", "nn-torch"),
            *("randomforest", "xgboost"),
        }
    ),
}
"""Algorithms that AlgorithmsConfig may name, by mode, as documented."""


def check_automl_request(request: Request) -> None:
    """Check the rules that the service model cannot express.

    Raises:
        ValidationError: A rule is violated, or the engine lacks a feature; the message is about the first such problem.
    """
    for rule in _RULES:
        for problem in rule(request):
            raise ValidationError(problem)


def _problem_type(request: Request) -> Iterator[str]:
    (given,) = request["AutoMLProblemTypeConfig"]  # a union: it has one member
    if given != "TabularJobConfig":
        yield (
            f"AutoMLProblemTypeConfig {given} is not supported by the local engine; it supports "
            "TabularJobConfig (BinaryClassification, MulticlassClassification and Regression)."
        )


def _channels(request: Request) -> Iterator[str]:
    channels = request["AutoMLJobInputDataConfig"]
    kinds = [each.get("ChannelType", "training") for each in channels]
    if kinds.count("training") != 1 or len(set(kinds)) != len(kinds):
        yield (
            "AutoMLJobInputDataConfig must have one channel of ChannelType training and at most one "
            f"of ChannelType validation; got {', '.join(kinds)}."
        )
    contents = {_content_type(each) for each in channels}
    if len(contents) > 1:
        yield (
            "Channels for training and validation must share the same ContentType; got "
            f"{', '.join(sorted(contents))}."
        )
    for each in channels:
        if "DataSource" not in each:
            yield "DataSource is required in each channel of AutoMLJobInputDataConfig."
            continue
        kind, is_gzip = (
            each["DataSource"]["S3DataSource"]["S3DataType"],
            each.get("CompressionType", "None") == "Gzip",
        )
        if is_gzip and kind != "S3Prefix":
            yield f"CompressionType Gzip is only supported for S3DataType S3Prefix; got {kind}."
        if kind == "AugmentedManifestFile":
            yield "S3DataType AugmentedManifestFile is only supported for image classification jobs."
        content = _content_type(each)
        if content not in CONTENT_TYPES:
            yield (
                f"ContentType {content} is not supported for tabular data; supported are "
                f"{', '.join(sorted(CONTENT_TYPES))}."
            )
        elif "parquet" in content and is_gzip:
            yield "CompressionType must be None for Parquet, because Parquet files are already compressed."


def _content_type(channel: Request) -> str:
    return str(channel.get("ContentType", "text/csv;header=present")).replace(" ", "")


def _split(request: Request) -> Iterator[str]:
    fraction = request.get("DataSplitConfig", {}).get("ValidationFraction")
    if fraction is None:
        return
    if not 0 < fraction < 1:
        yield f"ValidationFraction must be greater than 0 and less than 1; got {fraction}."
    if len(request["AutoMLJobInputDataConfig"]) > 1:
        yield "DataSplitConfig cannot be given together with a channel of ChannelType validation."


def _objective(request: Request) -> Iterator[str]:
    config = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    metric = request.get("AutoMLJobObjective", {}).get("MetricName")
    given = config.get("ProblemType")
    if (metric is None) != (given is None):
        yield (
            "You must either specify both ProblemType and AutoMLJobObjective, or none of them; got "
            f"{'AutoMLJobObjective' if given is None else 'ProblemType'} only."
        )
    elif given is not None and metric not in METRICS[Problem(given)]:
        yield (
            f"The metric {metric} is not supported for the problem type {given}; supported are "
            f"{', '.join(METRICS[Problem(given)])}."
        )


def _algorithms(request: Request) -> Iterator[str]:
    config = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    mode, chosen = Mode(config.get("Mode", Mode.AUTO)), chosen_algorithms(config)
    if not chosen:
        if config.get("CandidateGenerationConfig", {}).get("AlgorithmsConfig"):
            yield "AutoMLAlgorithms must name a minimum of 1 algorithm."
        return
    if mode is Mode.AUTO:
        yield "AlgorithmsConfig must not be set in AUTO training mode."
        return
    unknown = sorted(set(chosen) - ALGORITHMS[mode])
    if unknown:
        yield (
            f"AutoMLAlgorithms {', '.join(unknown)} cannot be used in {mode} mode; supported are "
            f"{', '.join(sorted(ALGORITHMS[mode]))}."
        )


def _weights(request: Request) -> Iterator[str]:
    config = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    if "SampleWeightAttributeName" not in config:
        return
    if config.get("Mode") != Mode.ENSEMBLING:
        yield "SampleWeightAttributeName is only supported in ENSEMBLING mode."
    if config["SampleWeightAttributeName"] == config["TargetAttributeName"]:
        yield "SampleWeightAttributeName must not be the TargetAttributeName."


def _limits(request: Request) -> Iterator[str]:
    config = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    criteria = config.get("CompletionCriteria", {})
    one, whole = (
        criteria.get(f"Max{noun}InSeconds")
        for noun in ("RuntimePerTrainingJob", "AutoMLJobRuntime")
    )
    if one is not None and whole is not None and one > whole:
        yield (
            f"MaxRuntimePerTrainingJobInSeconds ({one}) must not be greater than "
            f"MaxAutoMLJobRuntimeInSeconds ({whole})."
        )


def _not_here(request: Request) -> Iterator[str]:
    if request.get("ModelDeployConfig"):
        yield (
            "ModelDeployConfig is not supported by the local engine, which serves no endpoints; leave "
            "it out and deploy the InferenceContainers of the best candidate on AWS."
        )
    config = request["AutoMLProblemTypeConfig"]["TabularJobConfig"]
    if config.get("GenerateCandidateDefinitionsOnly"):
        yield (
            "GenerateCandidateDefinitionsOnly is not supported by the local engine, which writes no "
            "notebooks; set MaxCandidates to limit the number of trained candidates."
        )
    if "AutoMLComputeConfig" in request:
        yield "AutoMLComputeConfig (EMR Serverless) is not supported by the local engine; leave it out."


_RULES: tuple[Callable[[Request], Iterator[str]], ...] = (
    _problem_type,
    _channels,
    _split,
    _objective,
    _algorithms,
    _weights,
    _limits,
    _not_here,
    duplicate_tags,
)
