"""Bucket, roles, policies and log groups of an account as templates, for CloudFormation and Terraform. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from trainyard.permissions.policies import airflow_policy, execution_policy, trust_policy
from trainyard.sagemaker_api.names import run_slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.permissions.policies import Account, Document, Feature

LOG_GROUPS = ("/aws/sagemaker/TrainingJobs", "/aws/sagemaker/ProcessingJobs")
RETENTION_DAYS = 90
UNFINISHED_UPLOADS_DAYS = 7
MOST_CHARACTERS = 6144
"""Size limit of a managed policy in characters, without white space (IAM User Guide, "IAM and AWS STS quotas")."""


def policies(account: Account, features: Sequence[Feature]) -> Document:
    """Return the policies of Airflow's identity and of the execution role, and the role's trust policy, by name."""
    return {
        "airflow": airflow_policy(account, features),
        "execution_role": execution_policy(account, features),
        "execution_role_trust": trust_policy(),
    }


def cloudformation(account: Account, features: Sequence[Feature]) -> Document:
    """Return a CloudFormation template. Airflow's policies are managed policies, to attach to Airflow's own role."""
    kms = {"KMSMasterKeyID": account.kms_keys[0]} if account.kms_keys else {}
    algorithm = "aws:kms" if account.kms_keys else "AES256"
    encryption = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm, **kms}}
    aborts = {
        "Id": "abort-unfinished-uploads",
        "Status": "Enabled",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UNFINISHED_UPLOADS_DAYS},
    }
    path, name = _path_and_name(account.role_arn)
    resources: Document = {
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                "BucketName": account.bucket,
                "BucketEncryption": {"ServerSideEncryptionConfiguration": [encryption]},
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
                "LifecycleConfiguration": {"Rules": [aborts]},
            },
        },
        "ExecutionRole": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": name,
                "Path": path,
                "AssumeRolePolicyDocument": trust_policy(),
                "Policies": [
                    {
                        "PolicyName": "TrainyardJobs",
                        "PolicyDocument": execution_policy(account, features),
                    }
                ],
            },
        },
    }
    for number, policy in enumerate(_managed(airflow_policy(account, features)), start=1):
        resources[f"AirflowPolicy{number}"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": _policy_name(account, number),
                "PolicyDocument": policy,
            },
        }
    for name in LOG_GROUPS:
        resources[f"{name.rpartition('/')[2]}Logs"] = {
            "Type": "AWS::Logs::LogGroup",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {"LogGroupName": name, "RetentionInDays": RETENTION_DAYS},
        }
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}


def terraform(account: Account, features: Sequence[Feature]) -> Document:
    """Return a Terraform configuration in JSON, for a file that ends in `.tf.json`."""
    own = {"bucket": "${aws_s3_bucket.trainyard.id}"}
    kms: Document = {"kms_master_key_id": account.kms_keys[0]} if account.kms_keys else {}
    algorithm = "aws:kms" if account.kms_keys else "AES256"
    role = "${aws_iam_role.execution.id}"
    path, name = _path_and_name(account.role_arn)
    managed = enumerate(_managed(airflow_policy(account, features)), start=1)
    return {
        "resource": {
            "aws_s3_bucket": {"trainyard": {"bucket": account.bucket}},
            "aws_s3_bucket_server_side_encryption_configuration": {
                "trainyard": {
                    **own,
                    "rule": {
                        "apply_server_side_encryption_by_default": {
                            "sse_algorithm": algorithm,
                            **kms,
                        }
                    },
                }
            },
            "aws_s3_bucket_public_access_block": {
                "trainyard": {
                    **own,
                    "block_public_acls": True,
                    "block_public_policy": True,
                    "ignore_public_acls": True,
                    "restrict_public_buckets": True,
                }
            },
            "aws_s3_bucket_lifecycle_configuration": {
                "trainyard": {
                    **own,
                    "rule": {
                        "id": "abort-unfinished-uploads",
                        "status": "Enabled",
                        "filter": {},
                        "abort_incomplete_multipart_upload": {
                            "days_after_initiation": UNFINISHED_UPLOADS_DAYS
                        },
                    },
                }
            },
            "aws_iam_role": {
                "execution": {
                    "name": name,
                    "path": path,
                    "assume_role_policy": _text(trust_policy()),
                }
            },
            "aws_iam_role_policy": {
                "execution": {
                    "name": "TrainyardJobs",
                    "role": role,
                    "policy": _text(execution_policy(account, features)),
                }
            },
            "aws_iam_policy": {
                f"airflow_{number}": {
                    "name": _policy_name(account, number),
                    "policy": _text(policy),
                }
                for number, policy in managed
            },
            "aws_cloudwatch_log_group": {
                group.rpartition("/")[2]: {"name": group, "retention_in_days": RETENTION_DAYS}
                for group in LOG_GROUPS
            },
        }
    }


def _managed(policy: Document) -> list[Document]:
    """Return the policy split into several, each within IAM's size limit of a managed policy."""
    parts: list[list[Document]] = [[]]
    for statement in policy["Statement"]:
        if _size([*parts[-1], statement]) > MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(statement)
    return [{**policy, "Statement": part} for part in parts]


def _size(statements: Sequence[Document]) -> int:
    return len(re.sub(r"\s", "", json.dumps({"Version": "", "Statement": statements}))) + 10


def _policy_name(account: Account, number: int) -> str:
    deployment = "" if account.deployment is None else f"-{run_slug(account.deployment)}"
    return f"TrainyardAirflow{deployment}-{number}"


def _path_and_name(role_arn: str) -> tuple[str, str]:
    """Return the path and the name of a role. Worked: .../role/service/X gives /service/ and X."""
    path, _, name = role_arn.partition(":role")[2].rpartition("/")
    return f"{path}/", name


def _text(document: Any) -> str:
    return json.dumps(document)
