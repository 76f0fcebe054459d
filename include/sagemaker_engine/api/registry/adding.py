"""Insertion of a model package: token check, version number, row and tags, all in one transaction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.registry.tables import ExistingRowError
from sagemaker_engine.state.store import put_tags

if TYPE_CHECKING:
    import sqlite3

    from sagemaker_engine.state.database import Database


class TokenReusedError(Exception):
    """The client token was used before, with another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPackage:
    """Request for a package.

    `account_arn` is the beginning of the package's ARN, up to `model-package/`. `group` is the Describe response of
    the package's group, or None for an unversioned package.
    """

    account_arn: str
    group: dict[str, Any] | None
    request: dict[str, Any]
    created_at: float

    @property
    def fingerprint(self) -> str:
        """Return a digest of the request without its token, to compare two requests with the same token."""
        body = {key: value for key, value in self.request.items() if key != "ClientToken"}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def add_package(database: Database, package: NewPackage) -> str:
    """Insert the package and return its ARN.

    If an earlier request had the same token and content, return the ARN of the earlier package.

    Raises:
        TokenReusedError: The client token was used before, with another request.
        ExistingRowError: A package with this ARN exists.
    """
    token = package.request.get("ClientToken")
    with database.write() as db:
        before = db.execute(
            "SELECT arn, fingerprint FROM model_packages WHERE client_token = ?", (token,)
        ).fetchone()
        if before is None:
            return _insert(db, package, token)
        if before["fingerprint"] != package.fingerprint:
            raise TokenReusedError(token)
        return str(before["arn"])


def _insert(db: sqlite3.Connection, package: NewPackage, token: str | None) -> str:
    group_arn = None if package.group is None else package.group["ModelPackageGroupArn"]
    version = None if group_arn is None else _next_version(db, group_arn)
    name = _name(package)
    arn = f"{package.account_arn}{name}" + ("" if version is None else f"/{version}")
    if db.execute("SELECT 1 FROM model_packages WHERE arn = ?", (arn,)).fetchone():
        raise ExistingRowError(arn)
    document = _document(package, arn, version)
    db.execute(
        "INSERT INTO model_packages (arn, group_arn, name, version, created_at, approval, "
        "document, client_token, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(arn, group_arn, name, version, package.created_at),
            *(document.get("ModelApprovalStatus"), json.dumps(document)),
            *(token, package.fingerprint),
        ),
    )
    put_tags(db, arn, {tag["Key"]: tag["Value"] for tag in package.request.get("Tags", [])})
    return arn


def _next_version(db: sqlite3.Connection, group_arn: str) -> int:
    """Return a version number that no package of the group has or had."""
    row = db.execute(
        "UPDATE model_package_groups SET last_version = last_version + 1 WHERE arn = ? "
        "RETURNING last_version",
        (group_arn,),
    ).fetchone()
    return int(row["last_version"])


def _name(package: NewPackage) -> str:
    if package.group is not None:
        return str(package.group["ModelPackageGroupName"])
    return str(package.request["ModelPackageName"])


def _document(package: NewPackage, arn: str, version: int | None) -> dict[str, Any]:
    dropped = {"Tags", "ClientToken", "ModelPackageGroupName"}
    document = {key: value for key, value in package.request.items() if key not in dropped}
    document |= {
        "ModelPackageName": _name(package),
        "ModelPackageArn": arn,
        "CreationTime": package.created_at,
        "CreatedBy": {},
        "ModelPackageStatus": "Completed",
        "ModelPackageStatusDetails": {"ValidationStatuses": [], "ImageScanStatuses": []},
    }
    if version is not None:
        document["ModelPackageGroupName"] = _name(package)
        document["ModelPackageVersion"] = version
        document.setdefault("ModelApprovalStatus", "PendingManualApproval")
    return document
