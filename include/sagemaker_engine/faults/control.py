"""HTTP route that controls faults: `/_engine/faults` on the engine's port."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.faults.model import FaultError
from sagemaker_engine.faults.reader import read_plan
from sagemaker_engine.wire.json_service import answer_json, read_body

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sagemaker_engine.faults.store import FaultStore

PATH = "/_engine/faults"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultControl:
    """PUT replaces the faults and the schedule, GET returns them and when they occurred, DELETE removes all."""

    fault_store: FaultStore

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer one request with the resulting faults; an invalid document gets status 400."""
        method = environ["REQUEST_METHOD"]
        try:
            if method == "PUT":
                faults, schedule = read_plan(_document(environ))
                self.fault_store.replace(faults, schedule)
            elif method == "DELETE":
                self.fault_store.clear()
            elif method != "GET":
                message = f"{method} is not supported by {PATH}; use PUT, GET or DELETE"
                return answer_json("405 Method Not Allowed", {"message": message}, start_response)
        except FaultError as error:
            return answer_json("400 Bad Request", {"message": str(error)}, start_response)
        return answer_json("200 OK", self._told(), start_response)

    def _told(self) -> dict[str, Any]:
        schedule = self.fault_store.schedule()
        return {
            "faults": [each.as_json() for each in self.fault_store.entries()],
            "schedule": None if schedule is None else schedule.as_json(),
            "scheduled": self.fault_store.scheduled(),
        }


def _document(environ: WSGIEnvironment) -> Any:
    try:
        return json.loads(read_body(environ) or b"null")
    except ValueError as error:
        raise FaultError(f"faults: the body is not JSON: {error}") from error
