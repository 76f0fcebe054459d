"""IAM policies of Airflow's identity and of the jobs' execution role, for one account and the features in use.

Pure. Actions and resource types: Service Authorization Reference (2026-11). The DAGs' tests run under
exactly these policies. For each action of Airflow's policy that a run uses,
`tests/dags/test_account_rules.py` starts a run without this permission, and checks that the output names
the action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.runs.run_tags import DEPLOYMENT
from trainyard.sagemaker_api.names import deployment_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Document = dict[str, Any]
VERSION = "2012-10-17"
PREFIX = "trainyard"
"""First part of the S3 keys of runs, unless the run's param `prefix` differs, and of all other keys of a deployment."""
TASK_LOGS = "airflow-logs"
"""First part of the S3 keys of Airflow's task logs under docker-compose."""


class Feature(StrEnum):
    """Optional features of a deployment, in addition to training, evaluation and registration."""

    TUNE = "tune"
    AUTOML = "automl"
    JANITOR = "janitor"
    ALARMS = "alarms"
    TASK_LOGS = "task-logs"
    DASHBOARD = "dashboard"
    NOTIFICATIONS = "notifications"
    WARM_POOLS = "warm-pools"
    TRAINING_PLANS = "training-plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of the jobs, with the settings of the connection.

    Attributes:
        account: account id, 12 digits.
        bucket: bucket of runs and data sets.
        role_arn: ARN of the execution role.
        deployment: the connection's `trainyard.deployment`; without it, the policy allows Airflow to stop any
            job of the account.
        sources: `s3://bucket/prefix` of source data outside the deployment's own keys.
        kms_keys: ARNs of the keys that the connection names.
        topics: ARNs of the notifications' topics.
        has_network: whether jobs run in a VPC.
        prefixes: first parts of S3 keys that runs set in their param `prefix`, other than the default `PREFIX`.
    """

    account: str
    region: str
    bucket: str
    role_arn: str
    partition: str = "aws"
    deployment: str | None = None
    sources: tuple[str, ...] = ()
    kms_keys: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    has_network: bool = False
    prefixes: tuple[str, ...] = ()

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a regional resource."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def s3_arn(self, path: str) -> str:
        """Return the ARN of a bucket, or of keys in one."""
        return f"arn:{self.partition}:s3:::{path}"

    @property
    def own_keys(self) -> list[str]:
        """ARNs of the S3 keys of this deployment."""
        prefixes = (deployment_prefix(each, self.deployment) for each in (PREFIX, *self.prefixes))
        return [self.s3_arn(f"{self.bucket}/{each}/*") for each in dict.fromkeys(prefixes)]


def airflow_policy(account: Account, features: Sequence[Feature] = tuple(Feature)) -> Document:
    """Return the policy of the identity of Airflow's workers and triggerer."""
    statements = [*_jobs(account, features), *_registry(account), *_storage(account)]
    bucket = [account.s3_arn(account.bucket)]
    statements.append(_allow("ReadBucketEncryption", ["s3:GetEncryptionConfiguration"], bucket))
    for feature in features:
        statements += _FEATURES[feature](account)
    return {"Version": VERSION, "Statement": statements}


def execution_policy(account: Account, features: Sequence[Feature] = tuple(Feature)) -> Document:
    """Return the policy of the jobs' execution role."""
    logs = account.arn("logs", "log-group:/aws/sagemaker/*")
    statements = [
        *_storage(account),
        _allow(
            "Logs",
            [
                "logs:CreateLogGroup",
                "logs:CreateLogStream",
                "logs:DescribeLogStreams",
                "logs:PutLogEvents",
            ],
            [logs],
        ),
        _allow("Metrics", ["cloudwatch:PutMetricData"], ["*"]),
        _allow("ImageLogin", ["ecr:GetAuthorizationToken"], ["*"]),
        _allow(
            "Images",
            ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            [_images(account)],
        ),
    ]
    if account.kms_keys:
        statements.append(_allow("EncryptOutputs", ["kms:Encrypt"], list(account.kms_keys)))
    if account.has_network:
        statements.append(_allow("Network", _NETWORK_ACTIONS, ["*"]))
    if Feature.AUTOML in features:
        statements += _automl_jobs(account)
    return {"Version": VERSION, "Statement": statements}


def _automl_jobs(account: Account) -> Iterator[Document]:
    """Yield the statements for the calls that an AutoML job makes with its role to train and test its candidates."""
    kinds = ("Endpoint", "EndpointConfig", "Model", "ProcessingJob", "TrainingJob", "TransformJob")
    verbs = ("Create", "Describe")
    actions = [f"sagemaker:{verb}{kind}" for verb in verbs for kind in kinds]
    actions += [f"sagemaker:Delete{kind}" for kind in kinds[:3]]
    actions += [f"sagemaker:Stop{kind}" for kind in kinds[3:]]
    actions += ["sagemaker:AddTags", "sagemaker:InvokeEndpoint", "sagemaker:ListTags"]
    yield _allow("AutoML", sorted(actions), [account.arn("sagemaker", "*")])
    yield _allow(
        "PassItself",
        ["iam:PassRole"],
        [account.role_arn],
        StringEquals={"iam:PassedToService": "sagemaker.amazonaws.com"},
    )


def _images(account: Account) -> str:
    """Return an ARN pattern for the ECR repositories of all accounts in the region.

    AWS's own images are in AWS's accounts, so the pattern is not limited to this account.
    """
    return f"arn:{account.partition}:ecr:{account.region}:*:repository/*"


def trust_policy() -> Document:
    """Return the trust policy of the execution role."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    return {"Version": VERSION, "Statement": [statement]}


_NETWORK_ACTIONS = [
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
]
_FOLDERS = {
    "TrainingJob": "training-job",
    "ProcessingJob": "processing-job",
    "HyperParameterTuningJob": "hyper-parameter-tuning-job",
    "AutoMLJobV2": "automl-job",
}
_STOPS = {"AutoMLJobV2": "AutoMLJob"}
"""Names of job kinds in Stop actions, if they differ from those in Create actions."""


def _jobs(account: Account, features: Sequence[Feature]) -> Iterator[Document]:
    kinds = ["TrainingJob", "ProcessingJob"]
    kinds += ["HyperParameterTuningJob"] * (Feature.TUNE in features)
    kinds += ["AutoMLJobV2"] * (Feature.AUTOML in features)
    jobs = [account.arn("sagemaker", f"{_FOLDERS[each]}/*") for each in kinds]
    creates = [f"sagemaker:Create{each}" for each in kinds]
    stops = [f"sagemaker:Stop{_STOPS.get(each, each)}" for each in kinds]
    yield _allow("CreateOwnJobs", creates, jobs, **_requested(account))
    creating = {"sagemaker:TaggingAction": [each.partition(":")[2] for each in creates]}
    yield _allow("TagNewJobs", ["sagemaker:AddTags"], jobs, **_requested(account, **creating))
    yield _allow("StopOwnJobs", stops, jobs, **_tagged(account))
    yield _allow("TagOwnJobs", ["sagemaker:AddTags"], jobs, **_tagged(account), **_KEEPS_OWNER)
    reads = [f"sagemaker:Describe{each}" for each in kinds]
    yield _allow("ReadJobs", [*reads, "sagemaker:ListTags"], jobs)
    lists = ["sagemaker:ListProcessingJobs", "sagemaker:ListTrainingJobs"]
    yield _allow("ListJobs", lists, ["*"])
    yield _allow(
        "PassExecutionRole",
        ["iam:PassRole"],
        [account.role_arn],
        StringEquals={"iam:PassedToService": "sagemaker.amazonaws.com"},
    )
    yield _allow("ReadExecutionRole", ["iam:GetRole"], [account.role_arn])
    yield _allow("ReadQuotas", ["servicequotas:ListServiceQuotas"], ["*"])
    yield _allow("ReadImageDigests", ["ecr:BatchGetImage"], [_images(account)])
    logs = account.arn("logs", "log-group:/aws/sagemaker/*")
    reading = ["logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"]
    yield _allow("ReadJobLogs", reading, [logs])
    if account.kms_keys:
        yield _allow(
            "LendVolumeKeys",
            ["kms:CreateGrant"],
            list(account.kms_keys),
            Bool={"kms:GrantIsForAWSResource": "true"},
        )


def _registry(account: Account) -> Iterator[Document]:
    groups = account.arn("sagemaker", "model-package-group/*")
    packages = account.arn("sagemaker", "model-package/*")
    yield _allow(
        "RegisterModels",
        [
            "sagemaker:CreateModelPackage",
            "sagemaker:CreateModelPackageGroup",
            "sagemaker:DescribeModelPackageGroup",
            "sagemaker:UpdateModelPackage",
        ],
        [groups, packages],
    )
    yield _allow("FindModels", ["sagemaker:ListModelPackages"], ["*"])


def _storage(account: Account) -> Iterator[Document]:
    yield _allow("ListBucket", ["s3:ListBucket"], [account.s3_arn(account.bucket)])
    actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    yield _allow("OwnObjects", actions, account.own_keys)
    for index, source in enumerate(account.sources):
        path = source.removeprefix("s3://").rstrip("/")
        bucket = account.s3_arn(path.partition("/")[0])
        yield _allow(f"ListSource{index}", ["s3:ListBucket"], [bucket])
        objects = [account.s3_arn(path), account.s3_arn(f"{path}/*")]
        yield _allow(f"ReadSource{index}", ["s3:GetObject"], objects)
    if account.kms_keys:
        yield _allow("UseKeys", ["kms:Decrypt", "kms:GenerateDataKey"], list(account.kms_keys))


def _tune(account: Account) -> Iterator[Document]:
    searches = account.arn("sagemaker", "hyper-parameter-tuning-job/*")
    yield _allow("ReadTrials", ["sagemaker:ListTrainingJobsForHyperParameterTuningJob"], [searches])


def _automl(account: Account) -> Iterator[Document]:  # noqa: ARG001  # as the other features
    yield _allow("ReadCandidates", ["sagemaker:ListCandidatesForAutoMLJob"], ["*"])


def _janitor(account: Account) -> Iterator[Document]:
    folders = (*_FOLDERS.values(), "endpoint")
    things = [account.arn("sagemaker", f"{each}/*") for each in folders]
    lists = [
        "AutoMLJobs",
        "Endpoints",
        "HyperParameterTuningJobs",
        "ProcessingJobs",
        "TrainingJobs",
    ]
    yield _allow("ListAllPaidThings", [f"sagemaker:List{each}" for each in lists], ["*"])
    yield _allow("ReadTagsOfPaidThings", ["sagemaker:ListTags"], things)
    ends = [f"sagemaker:Stop{_STOPS.get(each, each)}" for each in _FOLDERS]
    ends += ["sagemaker:DeleteEndpoint", "sagemaker:UpdateTrainingJob"]
    yield _allow("EndOrphans", ends, things, **_tagged(account))


def _alarms(account: Account) -> Iterator[Document]:
    alarms = account.arn("cloudwatch", "alarm:trainyard-*")
    actions = ["cloudwatch:DeleteAlarms", "cloudwatch:PutMetricAlarm", "cloudwatch:TagResource"]
    yield _allow("Alarms", actions, [alarms])
    yield _allow("FindAlarms", ["cloudwatch:DescribeAlarms"], ["*"])


def _task_logs(account: Account) -> Iterator[Document]:
    keys = account.s3_arn(f"{account.bucket}/{TASK_LOGS}/*")
    yield _allow("TaskLogs", ["s3:GetObject", "s3:PutObject"], [keys])


def _dashboard(account: Account) -> Iterator[Document]:
    boards = f"arn:{account.partition}:cloudwatch::{account.account}:dashboard/trainyard-*"
    yield _allow("Dashboards", ["cloudwatch:DeleteDashboards", "cloudwatch:PutDashboard"], [boards])


def _notifications(account: Account) -> Iterator[Document]:
    topics = list(account.topics) or [account.arn("sns", "*")]
    yield _allow("Notify", ["sns:GetTopicAttributes", "sns:Publish"], topics)


def _warm_pools(account: Account) -> Iterator[Document]:
    jobs = [account.arn("sagemaker", "training-job/*")]
    yield _allow("EndWarmPools", ["sagemaker:UpdateTrainingJob"], jobs, **_tagged(account))


def _training_plans(account: Account) -> Iterator[Document]:
    plans = [account.arn("sagemaker", "training-plan/*")]
    yield _allow("ReadPlans", ["sagemaker:DescribeTrainingPlan"], plans)
    yield _allow("TrainInPlans", ["sagemaker:CreateTrainingJob"], plans)


_FEATURES = {
    Feature.TUNE: _tune,
    Feature.AUTOML: _automl,
    Feature.JANITOR: _janitor,
    Feature.ALARMS: _alarms,
    Feature.TASK_LOGS: _task_logs,
    Feature.DASHBOARD: _dashboard,
    Feature.NOTIFICATIONS: _notifications,
    Feature.WARM_POOLS: _warm_pools,
    Feature.TRAINING_PLANS: _training_plans,
}


_KEEPS_OWNER: Document = {"ForAllValues:StringNotEquals": {"aws:TagKeys": [DEPLOYMENT]}}
"""Condition that forbids changes of a resource's deployment tag."""


def _requested(account: Account, **keys: Any) -> Document:
    """Return an IAM condition on a job's request: it must have the deployment's tag and the values in `keys`.

    The condition is empty if the deployment has no name and there are no values.

    Args:
        account: account with the name of the deployment.
        keys: the required values by IAM condition key.
    """
    name = account.deployment
    wanted = {**({f"aws:RequestTag/{DEPLOYMENT}": name} if name else {}), **keys}
    return {"StringEquals": wanted} if wanted else {}


def _tagged(account: Account) -> Document:
    """Return an IAM condition: a resource must have the deployment's tag.

    The condition is empty if the deployment has no name.
    """
    name = account.deployment
    return {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT}": name}} if name else {}


def _allow(
    sid: str, actions: Sequence[str], resources: Sequence[str], **conditions: Any
) -> Document:
    statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": list(resources),
    }
    return {**statement, "Condition": conditions} if conditions else statement
