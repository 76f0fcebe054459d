"""`trainyard permissions`: IAM policies of a deployment, with only the permissions that its features need.

Prints JSON: the policies only, or a template that also has the bucket, the roles and the log groups.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

from trainyard.permissions.policies import Account, Feature
from trainyard.permissions.templates import cloudformation, policies, terraform

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS = {"policies": policies, "cloudformation": cloudformation, "terraform": terraform}
_KEY = re.compile(r"arn:aws[\w-]*:kms:[\w-]+:\d{12}:key/.+")
_ROLE = re.compile(r"arn:(aws[\w-]*):iam::(\d{12}):role/.+")
WRONG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the policies, or a CloudFormation or Terraform template with them, as JSON and return 0.

    Return 2 if the ARN of the role or of a KMS key is not valid.
    """
    options = _parser().parse_args(arguments)
    role = _ROLE.fullmatch(options.role)
    if role is None:
        sys.stderr.write(
            f"error: --role: got {options.role!r}; write the ARN of the jobs' execution role, such as "
            "arn:aws:iam::111122223333:role/TrainyardExecution\n"
        )
        return WRONG
    for key in options.kms_key:
        if not _KEY.fullmatch(key):
            sys.stderr.write(
                f"error: --kms-key: got {key!r}; IAM accepts the ARN of a key only, not an alias: "
                "arn:aws:kms:<region>:<account>:key/<id>\n"
            )
            return WRONG
    account = Account(
        account=role[2],
        partition=role[1],
        region=options.region,
        bucket=options.bucket,
        role_arn=options.role,
        deployment=options.deployment,
        sources=tuple(options.source),
        kms_keys=tuple(options.kms_key),
        topics=tuple(options.topic),
        has_network=options.vpc,
        prefixes=tuple(options.prefix),
    )
    features = [Feature(each) for each in options.feature]
    document = FORMATS[options.format](account, features)
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainyard permissions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    repeatable = partial(parser.add_argument, action="append", default=[])
    parser.add_argument("--bucket", required=True, help="bucket of runs and data sets")
    parser.add_argument("--role", required=True, help="ARN of the jobs' execution role")
    parser.add_argument("--region", required=True, help="region of the bucket and the jobs")
    parser.add_argument(
        "--deployment",
        help="the connection's trainyard.deployment: Airflow may then stop and tag its own jobs only",
    )
    repeatable(
        "--feature",
        choices=[each.value for each in Feature],
        help="feature in use, besides training, evaluation and registration; repeatable",
    )
    repeatable(
        "--prefix",
        help="keys of runs whose param `prefix` is not trainyard, beside those below trainyard/; repeatable",
    )
    repeatable(
        "--source",
        metavar="S3_URI",
        help="source data outside the deployment's own keys; repeatable",
    )
    repeatable(
        "--kms-key",
        metavar="ARN",
        help="a key that the connection names; repeatable",
    )
    repeatable(
        "--topic",
        metavar="ARN",
        help="a topic of notifications; repeatable",
    )
    parser.add_argument("--vpc", action="store_true", help="jobs run in a VPC")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="policies",
        help="form of the output (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
