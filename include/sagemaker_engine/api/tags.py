"""Operations AddTags, ListTags and DeleteTags on the resources that the engine itself stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.state.store import put_tags, tags_of
from sagemaker_engine.wire.errors import ResourceNotFoundError, ValidationError
from sagemaker_engine.wire.paging import page_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.api.context import ApiContext
    from sagemaker_engine.wire.json_service import Call, Handler

MAX_TAGS = 50
_TABLES = {
    "training-job": "jobs",
    "processing-job": "jobs",
    "hyper-parameter-tuning-job": "tuning_jobs",
    "automl-job": "automl_jobs",
    "model-package-group": "model_package_groups",
    "model-package": "model_packages",
    "model": "models",
    "endpoint-config": "endpoint_configs",
    "training-plan": "training_plans",
}


@dataclass(frozen=True, slots=True)
class Tags:
    """Handlers of the tag operations. A resource of an unsupported kind is reported as not found."""

    context: ApiContext

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handler per operation."""
        return {"AddTags": self.add, "ListTags": self.list, "DeleteTags": self.delete}

    def of(self, arn: str) -> dict[str, str]:
        """Return the tags of a resource; empty if the resource does not exist."""
        with self.context.store.database.read() as db:
            return tags_of(db, arn)

    def add(self, call: Call) -> dict[str, Any]:
        """Add tags, or overwrite tags with the same keys.

        Raises:
            ValidationError: A key starts with `aws:`, or the resource would have more than 50 tags.
            ResourceNotFoundError: The resource does not exist.
        """
        arn = self._resource(call)
        added = {tag["Key"]: tag["Value"] for tag in call.request["Tags"]}
        reserved = sorted(key for key in added if key.lower().startswith("aws:"))
        if reserved:
            raise ValidationError(
                f'Tag keys must not start with "aws:"; got {", ".join(reserved)}.'
            )
        with self.context.store.database.write() as db:
            tags = {**tags_of(db, arn), **added}
            if len(tags) > MAX_TAGS:
                raise ValidationError(
                    f"The resource would have {len(tags)} tags; at most {MAX_TAGS} are allowed."
                )
            put_tags(db, arn, added)
        return {"Tags": _wire(tags)}

    def list(self, call: Call) -> dict[str, Any]:
        """Return one page of a resource's tags.

        Raises:
            ResourceNotFoundError: The resource does not exist.
        """
        arn = self._resource(call)
        with self.context.store.database.read() as db:
            tags = _wire(tags_of(db, arn))
        page, token = page_of(tags, call.request, default=MAX_TAGS)
        return {"Tags": page, "NextToken": token}

    def delete(self, call: Call) -> dict[str, Any]:
        """Remove tags by key. Missing keys are ignored.

        Raises:
            ResourceNotFoundError: The resource does not exist.
        """
        arn = self._resource(call)
        with self.context.store.database.write() as db:
            db.executemany(
                "DELETE FROM tags WHERE arn = ? AND key = ?",
                [(arn, key) for key in call.request["TagKeys"]],
            )
        return {}

    def _resource(self, call: Call) -> str:
        arn: str = call.request["ResourceArn"]
        kind = arn.split(":", 5)[-1].partition("/")[0]
        table = _TABLES.get(kind)
        if table is not None:
            sql = f"SELECT 1 FROM {table} WHERE arn = ?"  # noqa: S608  # A name from _TABLES.
            with self.context.store.database.read() as db:
                if db.execute(sql, (arn,)).fetchone() is not None:
                    return arn
        raise ResourceNotFoundError(f"Could not find resource with ARN {arn}")


def _wire(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
