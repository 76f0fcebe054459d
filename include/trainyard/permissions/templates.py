"""Bucket, roles, policies and log groups of an account as templates, for CloudFormation and Terraform. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.permissions.policies import airflow_policy, execution_policy, trust_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainyard.permissions.policies import Account, Document, Feature

LOG_GROUPS = ("/aws/sagemaker/TrainingJobs", "/aws/sagemaker/ProcessingJobs")
RETENTION_DAYS = 90
UNFINISHED_UPLOADS_DAYS = 7
AIRFLOW_POLICY = "TrainyardAirflow"


def policies(account: Account, features: Sequence[Feature]) -> Document:
    """Return the three policies by the identity that needs them."""
    return {
        "airflow": airflow_policy(account, features),
        "execution_role": execution_policy(account),
        "execution_role_trust": trust_policy(),
    }


def cloudformation(account: Account, features: Sequence[Feature]) -> Document:
    """Return a CloudFormation template; the Airflow policy is a managed one to attach to Airflow's own role."""
    kms = {"KMSMasterKeyID": account.kms_keys[0]} if account.kms_keys else {}
    algorithm = "aws:kms" if account.kms_keys else "AES256"
    encryption = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm, **kms}}
    aborts = {
        "Id": "abort-unfinished-uploads",
        "Status": "Enabled",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UNFINISHED_UPLOADS_DAYS},
    }
    role = account.role_arn.rpartition("/")[2]
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
                "RoleName": role,
                "AssumeRolePolicyDocument": trust_policy(),
                "Policies": [
                    {"PolicyName": "TrainyardJobs", "PolicyDocument": execution_policy(account)}
                ],
            },
        },
        "AirflowPolicy": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": AIRFLOW_POLICY,
                "PolicyDocument": airflow_policy(account, features),
            },
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
                    "name": account.role_arn.rpartition("/")[2],
                    "assume_role_policy": _text(trust_policy()),
                }
            },
            "aws_iam_role_policy": {
                "execution": {
                    "name": "TrainyardJobs",
                    "role": role,
                    "policy": _text(execution_policy(account)),
                }
            },
            "aws_iam_policy": {
                "airflow": {
                    "name": AIRFLOW_POLICY,
                    "policy": _text(airflow_policy(account, features)),
                }
            },
            "aws_cloudwatch_log_group": {
                name.rpartition("/")[2]: {"name": name, "retention_in_days": RETENTION_DAYS}
                for name in LOG_GROUPS
            },
        }
    }


def _text(document: Any) -> str:
    return json.dumps(document)
