"""Policies of an engine, and the rejection of requests that they do not allow."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sagemaker_engine.access.asks import access_key_of, asks_of
from sagemaker_engine.access.policy import Policy, PolicyError, refusal
from sagemaker_engine.access.role_credentials import role_access_key
from sagemaker_engine.http.denial import answer_denied
from sagemaker_engine.state.whole_file import write_whole
from sagemaker_engine.wire.scope import is_form, service_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.access.asks import RequestScope, Uploads
    from sagemaker_engine.access.policy import Ask

_SHAPE = (
    '{"identities": {"<access key or role ARN>": [<policy>, ...]}, "guard_rails": [<policy>, ...]}'
)


@dataclass(frozen=True, slots=True)
class _Policies:
    """Document that sets the engine's policies, and the policies parsed from it.

    `arns` has the role ARN of each access key that belongs to a role.
    """

    document: dict[str, Any] = field(default_factory=dict)
    guard_rails: tuple[Policy, ...] = ()
    by_access_key: Mapping[str, tuple[Policy, ...]] = field(default_factory=dict)
    arns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: object) -> _Policies:
        if not isinstance(document, dict) or document.keys() - {"identities", "guard_rails"}:
            got = f"the keys {sorted(document)}" if isinstance(document, dict) else repr(document)
            raise PolicyError(f"access: got {got}; write {_SHAPE}")
        rails = _policies(document.get("guard_rails", []), where="guard_rails")
        by_access_key, arns = {}, {}
        identities = document.get("identities", {})
        if not isinstance(identities, dict):
            raise PolicyError(f"identities: got {identities!r}; write {_SHAPE}")
        for identity, given in identities.items():
            is_role = identity.startswith("arn:")
            access_key = role_access_key(identity) if is_role else identity
            by_access_key[access_key] = _policies(given, where=f"identities.{identity}")
            if is_role:
                arns[access_key] = identity
        return cls(document, rails, by_access_key, arns)


def _policies(given: object, *, where: str) -> tuple[Policy, ...]:
    if not isinstance(given, list):
        raise PolicyError(f"{where}: got {given!r}; write a list of policy documents")
    return tuple(
        Policy.from_document(each, where=f"{where}[{index}]") for index, each in enumerate(given)
    )


class AccessControl:
    """Rejects requests that the identity's policies or the account's guard rails do not allow.

    An identity without policies may do everything that no guard rail denies. The policies are stored in a file of the
    engine's state folder. Requested and denied actions are counted by identity (`report`); the counts are
    lost when the process ends.
    """

    def __init__(
        self,
        path: Path,
        place: RequestScope,
        *,
        tags_of: Callable[[str], Mapping[str, str]],
        has_bucket: Callable[[str], bool],
    ) -> None:
        """Load the policies that an earlier engine stored in `path`.

        Args:
            path: File of the policies.
            place: Account and default region.
            tags_of: Returns the tags of an ARN.
            has_bucket: Returns whether a bucket exists. If it does not, S3 responds with 404 and policies do not apply.
        """
        self._path, self._place = path, place
        self._tags_of, self._has_bucket = tags_of, has_bucket
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._denied: Counter[tuple[str, str]] = Counter()
        self._uploads: Uploads = {}
        self._policies = _Policies()
        if path.exists():
            self._policies = _Policies.from_document(json.loads(path.read_text(encoding="utf-8")))

    def refuse(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes] | None:
        """Return None if a request is allowed; otherwise answer it with its service's error and return the body."""
        access_key = access_key_of(environ)
        if access_key is None:
            return None
        asks = asks_of(environ, self._place, self._uploads)
        policies = self._policies
        with self._lock:
            self._calls.update({(access_key, ask.action) for ask in asks})
        own = policies.by_access_key.get(access_key)
        if own is None and not policies.guard_rails:
            return None
        for each in asks:
            if self._is_of_no_bucket(each):
                continue
            ask = self._with_tags(each)
            why = refusal(ask, allowing=own, denying=policies.guard_rails)
            if why is not None:
                with self._lock:
                    self._denied[access_key, ask.action] += 1
                return answer_denied(
                    self._message(access_key, ask, why),
                    environ,
                    start_response,
                    is_s3=service_of(environ) in {"s3", "s3express"},
                    status=403 if is_form(environ) else 400,
                )
        return None

    def _is_of_no_bucket(self, ask: Ask) -> bool:
        path = ask.resource.partition(":::")[2]
        is_new = ask.action == "s3:CreateBucket"
        return bool(path) and not is_new and not self._has_bucket(path.partition("/")[0])

    def _with_tags(self, ask: Ask) -> Ask:
        if not ask.resource.startswith("arn:aws:sagemaker:"):
            return ask
        tags = self._tags_of(ask.resource).items()
        return replace(
            ask,
            context={**ask.context, **{f"aws:ResourceTag/{key}": (text,) for key, text in tags}},
        )

    def _message(self, access_key: str, ask: Ask, why: str) -> str:
        user = f"arn:aws:iam::{self._place.account}:user/{access_key}"
        identity = self._policies.arns.get(access_key, user)
        return f"User: {identity} is not authorized to perform: {ask.action} on resource: {ask.resource} {why}"

    def put(self, document: object) -> None:
        """Replace the policies.

        Raises:
            PolicyError: The document is malformed.
        """
        policies = _Policies.from_document(document)
        with self._lock:
            write_whole(self._path, json.dumps(policies.document))
            self._policies = policies

    def clear(self) -> None:
        """Remove the policies, and the counts of actions."""
        self.put({})
        self._calls.clear()
        self._denied.clear()

    def report(self) -> dict[str, Any]:
        """Return the policies, and the counts of actions by identity as `calls` and `denied`."""
        with self._lock:
            calls, denied = dict(self._calls), dict(self._denied)
        return {
            "identities": {},
            "guard_rails": [],
            **self._policies.document,
            "calls": self._by_identity(calls),
            "denied": self._by_identity(denied),
        }

    def _by_identity(self, counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (access_key, action), count in sorted(counts.items()):
            found.setdefault(self._policies.arns.get(access_key, access_key), {})[action] = count
        return found
