"""A running engine for tests: a separate process that any AWS client can use.

Functions of this module set the engine's faults and advance its clock for training plans.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sagemaker_engine import IMAGES_FOLDER, SOURCE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CONTROL_LIMIT_S = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EngineStartError(RuntimeError):
    """The engine's process did not become ready."""


@dataclass(kw_only=True)
class RunningEngine:
    """The process `python -m sagemaker_engine`, with a state folder that outlives it.

    Attributes:
        root: State folder.
        region: Region of ARNs and clients.
        account: Account id of 12 digits.
        time_scale: Factor on waits that do no work, such as the grace period of a stop; 1.0 is the pace of AWS.
        port: TCP port; 0 for a free one.
        warm: When torch is preloaded for jobs: `start` (with the engine), `use` (with the first job) or `never`.
        arguments: Further command line arguments.
        limit_s: Seconds after which a start or stop counts as a hang.
        endpoint_url: URL of the running engine.
    """

    root: Path
    region: str = "us-east-1"
    account: str = "123456789012"
    time_scale: float = 0.02
    port: int = 0
    warm: str = "use"
    arguments: tuple[str, ...] = ()
    limit_s: float = 1000.0
    endpoint_url: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def bucket(self) -> str:
        """The bucket that exists from the start."""
        return f"sagemaker-{self.region}-{self.account}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which any AWS client uses this engine."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    @property
    def role_arn(self) -> str:
        """The execution role that exists from the start."""
        return f"arn:aws:iam::{self.account}:role/TrainyardExecutionRole"

    def start(self) -> RunningEngine:
        """Start the process, wait until it is ready, and return self.

        Raises:
            EngineStartError: The process ended, or was not ready in time; the message contains its log.
        """
        self.root = self.root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sagemaker_engine", "--port", str(self.port)]
        command += ["--root", str(self.root), "--time-scale", str(self.time_scale)]
        command += ["--region", self.region, "--account", self.account]
        command += ["--warm", self.warm, *self.arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        with (self.root / "engine.log").open("a") as log:
            self.process = subprocess.Popen(
                command,
                env={**environment, **_import_path(), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.endpoint_url = self._wait_until_ready()
        return self

    def kill(self) -> None:
        """Kill the process by SIGKILL, without any clean-up.

        Raises:
            TimeoutExpired: It did not end in time.
        """
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the process by SIGTERM and return its exit status.

        Raises:
            TimeoutExpired: It did not end in time, and was killed.
        """
        return self._end(signal.SIGTERM)

    def restart(self) -> RunningEngine:
        """Kill the process if it is running, start a new one with the same state, and return self.

        Raises:
            EngineStartError: The new process did not start.
        """
        if self.process is not None:
            self.kill()
        return self.start()

    def client(self, service: str, **options: Any) -> Any:
        """Return a boto3 client for a service of this engine."""
        import boto3
        from botocore.config import Config

        config = Config(
            retries={"total_max_attempts": 2, "mode": "standard"},
            connect_timeout=5,
            read_timeout=60,
        )
        make_client: Any = boto3.client  # its stubs accept only literal names
        return make_client(
            service,
            endpoint_url=self.endpoint_url,
            region_name=options.pop("region_name", self.region),
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106
            config=config.merge(options.pop("config", Config())),
            **options,
        )

    def _wait_until_ready(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit_s)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("engine ready "):
            self.kill()
            log = (self.root / "engine.log").read_text(encoding="utf-8")
            raise EngineStartError(
                f"the engine did not start; {self.root / 'engine.log'} contains:\n{log}"
            )
        return line.split()[2]

    def _end(self, number: int) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            status = self.process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None
        return status


def _import_path() -> dict[str, str]:
    """Return the environment variables that the engine's process needs to import this package.

    The result is empty if the package is installed.
    """
    if IMAGES_FOLDER.is_relative_to(SOURCE_FOLDER):
        return {}
    given = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCE_FOLDER), given)))}


@contextmanager
def faults(endpoint_url: str, *documents: dict[str, Any]) -> Iterator[None]:
    """Set these faults, and no others, inside the `with` block; docs/faults.md describes the documents.

    Raises:
        ValueError: The engine rejects a document; the message has its reason.
    """
    _send(endpoint_url, "PUT", "faults", list(documents))
    try:
        yield
    finally:
        end_faults(endpoint_url)


def end_faults(endpoint_url: str) -> None:
    """Remove all faults.

    Raises:
        ValueError: The engine rejects the request.
    """
    _send(endpoint_url, "DELETE", "faults")


def times_fired(endpoint_url: str) -> list[int]:
    """Return the number of times that each fault has occurred, in the order in which the faults were set.

    Raises:
        ValueError: The engine rejects the request.
    """
    return [len(each["fired_at"]) for each in _send(endpoint_url, "GET", "faults")["faults"]]


def advance_plans(endpoint_url: str, seconds: float) -> None:
    """Advance the engine's clock for training plans by `seconds`.

    The plans' windows of reserved capacity then begin and end sooner.

    Raises:
        ValueError: The engine rejects the number.
    """
    _send(endpoint_url, "PUT", "training-plans", {"advance_s": seconds})


def _send(endpoint_url: str, method: str, resource: str, document: Any = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(  # noqa: S310  # the engine under test
        f"{endpoint_url}/_engine/{resource}", data=body, method=method
    )
    try:
        with _DIRECT.open(request, timeout=_CONTROL_LIMIT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(f"the engine rejects the {resource}: {error.read().decode()}") from error
