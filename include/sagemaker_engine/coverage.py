"""Coverage of AWS's operations: the engine executes, stores or rejects each of them.

"Stores" means that the engine only stores a description, for example of a model. AWS itself does no more
than this in such an operation. A rejected operation fails with a reason.

The tables of this module are the only source of the coverage. The application compares its handlers with
them and builds its rejections from them. `docs/engine_coverage.md` is the output of
`python -m sagemaker_engine.coverage`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from sagemaker_engine.wire.model import load_model, models_signed_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE = "docs/engine_coverage.md"
SAGEMAKER = "sagemaker"
NOT_BUILT = "no part of the engine does this work"


class OperationEffect(StrEnum):
    """The engine's response to an operation."""

    EXECUTES = "executes"
    """The engine does the work, and Describe reports its result."""
    STORES = "stores"
    """The description is stored and survives a restart; on AWS nothing else happens either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFamily:
    """Group of operations on one kind of resource; all of them have the same `effect`."""

    title: str
    effect: OperationEffect
    operations: tuple[str, ...]
    note: str


ANSWERED = (
    OperationFamily(
        title="Training jobs",
        effect=OperationEffect.EXECUTES,
        operations=(
            *("CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob"),
            *("UpdateTrainingJob", "DeleteTrainingJob"),
        ),
        note="AWS's container toolkit runs the script on each instance",
    ),
    OperationFamily(
        title="Training plans",
        effect=OperationEffect.EXECUTES,
        operations=(
            *("SearchTrainingPlanOfferings", "CreateTrainingPlan", "DescribeTrainingPlan"),
            *("ListTrainingPlans", "ExtendTrainingPlan", "DescribeTrainingPlanExtensionHistory"),
            *("DescribeReservedCapacity", "ListUltraServersByReservedCapacity"),
        ),
        note="offers come from a catalogue; jobs run in a plan's windows; you can move the clock of the plans forward",
    ),
    OperationFamily(
        title="Processing jobs",
        effect=OperationEffect.EXECUTES,
        operations=(
            *("CreateProcessingJob", "DescribeProcessingJob", "ListProcessingJobs"),
            *("StopProcessingJob", "DeleteProcessingJob"),
        ),
        note="the container's command runs on each instance",
    ),
    OperationFamily(
        title="Hyperparameter tuning jobs",
        effect=OperationEffect.EXECUTES,
        operations=(
            *("CreateHyperParameterTuningJob", "DescribeHyperParameterTuningJob"),
            *("ListHyperParameterTuningJobs", "ListTrainingJobsForHyperParameterTuningJob"),
            *("StopHyperParameterTuningJob", "DeleteHyperParameterTuningJob"),
        ),
        note="each trial is a training job of the engine",
    ),
    OperationFamily(
        title="AutoML jobs",
        effect=OperationEffect.EXECUTES,
        operations=(
            *("CreateAutoMLJobV2", "DescribeAutoMLJobV2", "CreateAutoMLJob", "DescribeAutoMLJob"),
            *("ListAutoMLJobs", "ListCandidatesForAutoMLJob", "StopAutoMLJob"),
        ),
        note="tabular problems only; each candidate is a training job of the engine",
    ),
    OperationFamily(
        title="Tags",
        effect=OperationEffect.STORES,
        operations=("AddTags", "ListTags", "DeleteTags"),
        note="of every resource that the engine executes or stores",
    ),
    OperationFamily(
        title="Model registry",
        effect=OperationEffect.STORES,
        operations=(
            *("CreateModelPackageGroup", "DescribeModelPackageGroup", "ListModelPackageGroups"),
            *("DeleteModelPackageGroup", "CreateModelPackage", "DescribeModelPackage"),
            *("BatchDescribeModelPackage", "ListModelPackages", "UpdateModelPackage"),
            "DeleteModelPackage",
        ),
        note="groups, versions, approval",
    ),
    OperationFamily(
        title="Models",
        effect=OperationEffect.STORES,
        operations=("CreateModel", "DescribeModel", "ListModels", "DeleteModel"),
        note="role, image and model data are checked; nothing serves the model",
    ),
    OperationFamily(
        title="Endpoint configurations",
        effect=OperationEffect.STORES,
        operations=(
            *("CreateEndpointConfig", "DescribeEndpointConfig", "ListEndpointConfigs"),
            "DeleteEndpointConfig",
        ),
        note="no endpoint can be created from a configuration",
    ),
    OperationFamily(
        title="Endpoints: reads and deletion",
        effect=OperationEffect.STORES,
        operations=("DescribeEndpoint", "ListEndpoints", "DeleteEndpoint"),
        note="CreateEndpoint is rejected, so nothing is ever stored: the list is empty, and Describe and Delete fail",
    ),
)

REJECTED = (
    ("Endpoints", r"Endpoint|InferenceComponent", "the engine serves no models"),
    ("Inference tests", r"Inference", "the engine serves no models"),
    (
        "Batch transform",
        r"TransformJob",
        "the engine serves no models; run a processing job instead",
    ),
    (
        "Pipelines",
        r"Pipeline",
        "the engine runs no SageMaker pipelines; use an Airflow DAG",
    ),
    (
        "Experiments and lineage",
        r"Experiment|Trial|Lineage|Artifact|Association|Context$|Contexts$|Action$|Actions$",
        "the engine keeps no experiments, trials or lineage",
    ),
    (
        "Search",
        r"^Search$|SearchSuggestions",
        "the engine has no search index; use the List operations",
    ),
    ("Feature store", r"Feature|Record", "the engine has no feature store"),
    (
        "Monitoring of models",
        r"Monitoring|JobDefinition",
        "the engine serves no models that could be monitored",
    ),
    ("Model cards", r"ModelCard", "the engine keeps no model cards"),
    ("MLflow", r"Mlflow", "the engine runs no MLflow server"),
    ("Clusters", r"Cluster|ComputeQuota", "the engine has no HyperPod clusters"),
    (
        "Notebooks and Studio",
        r"Notebook|Domain|UserProfile|App$|Apps$|AppImage|Space|Studio|PartnerApp",
        "the engine runs no notebooks and no Studio",
    ),
    (
        "Labeling",
        r"Label|Workforce|Workteam|FlowDefinition|HumanTask|HumanLoop|UiTemplate",
        "the engine has no labeling jobs",
    ),
    ("Compilation and edge devices", r"Compilation|Edge|Device|Heartbeat|Deployments", NOT_BUILT),
)
"""(title, pattern of operations, reason); the first match applies. An operation without a match is rejected, too."""

OTHERS = "All others"

OWN_SERVICES: Mapping[str, str] = {
    "servicequotas": "SageMaker's quotas are enforced: a job that exceeds one is rejected",
    "ecr": "BatchGetImage returns digests of the images that the engine knows; a digest changes with the packages and "
    "programs that emulate the image; the returned manifest has no layers; all other operations are rejected",
}
"""Effect per service that the engine implements itself, by signing name, besides SageMaker, S3 and logs."""

OTHER_SERVICES: Mapping[str, str] = {
    "s3": "executed: objects are files that survive a restart",
    "logs": "executed for the log groups of jobs; other groups and streams are stored in memory",
    "monitoring": "CloudWatch: a job's metrics are read from the job's files; alarms are stored in memory, and their "
    "state never changes",
    "iam": "roles and policies are stored in memory without effect, and SimulatePrincipalPolicy always returns "
    "`allowed`; enforced policies are set separately ([permissions](engine_access.md))",
    "sts": "returns the account, and invented credentials; the engine accepts any secret key",
    "events": "EventBridge: rules deliver the jobs' state changes to SQS queues and log groups, to nothing else",
    "sns": "topics deliver to SQS queues and HTTP; e-mail and SMS are stored in memory and not sent",
    "sqs": "executed in memory",
}
"""Effect per service, by signing name. Other services are rejected. State in memory is lost when the engine exits."""

REJECTED_MEMBERS: Mapping[str, str] = {
    "ExperimentConfig": "no experiment would list the job",
    "MlflowConfig": "no MLflow server would get the run",
    "ModelPackageConfig": "no model package would be registered; call CreateModelPackage after the job",
    "ServerlessJobConfig": "it names one of AWS's models, which the engine does not have; use AlgorithmSpecification "
    "and ResourceConfig",
}
"""Members of Create requests that are rejected, because the engine would not do what they request."""

SILENT_MEMBERS: Mapping[str, str] = {
    "VpcConfig, NetworkConfig.VpcConfig": "instances have a network of their own, not your subnets",
    "KmsKeyId, VolumeKmsKeyId, OutputDataConfig.KmsKeyId": "nothing is encrypted",
    "EnableInterContainerTrafficEncryption": "traffic between instances stays on this machine, in the clear",
    "RemoteDebugConfig, InfraCheckConfig, SessionChainingConfig": "no debug session, no health check, no session tags, "
    "in this order",
    "InstancePlacementConfig": "there is one machine",
}
"""Members that are accepted and returned by Describe, but have no effect on a job."""


def answered() -> dict[str, OperationFamily]:
    """Return the family of each SageMaker operation that is executed or stored."""
    return {operation: family for family in ANSWERED for operation in family.operations}


@cache
def refusals(service: str = SAGEMAKER) -> Mapping[str, str]:
    """Return the operations of a service that are rejected, each with the reason."""
    known = answered() if service == SAGEMAKER else {}
    return {
        operation: _group_of(operation)[1]
        for operation in load_model(service).operations
        if operation not in known
    }


def _group_of(operation: str) -> tuple[str, str]:
    for title, pattern, reason in REJECTED:
        if re.search(pattern, operation):
            return title, reason
    return OTHERS, NOT_BUILT


def render() -> str:
    """Return the coverage page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    total, rejected = len(load_model(SAGEMAKER).operations), len(refusals())
    yield from (
        "# Coverage of the engine",
        "",
        "<!-- Written by `python -m sagemaker_engine.coverage`; edit include/sagemaker_engine/coverage.py. -->",
        "",
        "The engine executes, stores or rejects each operation of SageMaker. *Executes* means that the engine does the",
        "work. *Stores* means that the engine only stores a description, for example of a model. AWS itself does no",
        "more than this in such an operation.",
        "A rejected operation fails with `UnknownOperationException` (status 501) and the reason. Executed and stored",
        "operations ignore only the [members without an effect](#members-of-a-request). For the",
        "[other services](#other-services), the engine does only what the table there states.",
        f"Of SageMaker's {total} operations, {total - rejected} are executed or stored, and {rejected} are rejected.",
        "",
        "## Executed and stored",
        "| Resource | Effect | Operations | Note |",
        "|---|---|---|---|",
    )
    for family in ANSWERED:
        operations = ", ".join(f"`{each}`" for each in family.operations)
        yield f"| {family.title} | {family.effect} | {operations} | {family.note} |"
    yield from ("", "## Rejected", "| Resource | Why | Operations |", "|---|---|---|")
    groups: dict[tuple[str, str], list[str]] = {}
    for operation in sorted(refusals()):
        groups.setdefault(_group_of(operation), []).append(f"`{operation}`")
    order = [title for title, _, _ in REJECTED] + [OTHERS]
    for (title, reason), names in sorted(groups.items(), key=lambda each: order.index(each[0][0])):
        yield f"| {title} | {reason} | {', '.join(names)} |"
    yield from (
        "",
        "## Members of a request",
        "A Create request with one of these members is rejected:",
        "",
    )
    yield from ("| Member | Why |", "|---|---|")
    yield from (f"| `{member}` | {why} |" for member, why in REJECTED_MEMBERS.items())
    yield from (
        "",
        "The engine accepts these members, and Describe returns them, but they have no effect:",
        "",
    )
    yield from ("| Member | On the engine |", "|---|---|")
    yield from (f"| {member} | {why} |" for member, why in SILENT_MEMBERS.items())
    yield from ("", "## SageMaker's other services", "All of their operations are rejected.", "")
    yield from ("| Service | Operations |", "|---|---|")
    for model in models_signed_as(SAGEMAKER):
        if model.name != SAGEMAKER:
            yield f"| {model.name} | {', '.join(f'`{each}`' for each in sorted(model.operations))} |"
    yield from (
        "",
        "## Other services",
        "A request to a service that is not in this list is rejected.",
        "",
    )
    yield from ("| Signing name | What the engine does |", "|---|---|")
    for service, what in {**OTHER_SERVICES, **OWN_SERVICES}.items():
        yield f"| `{service}` | {what} |"


if __name__ == "__main__":
    sys.stdout.write(render())
