"""Preloading of the warm parent, the process from which job processes are forked.

Preloading imports the modules that jobs need. The imports must not start a thread or use a GPU: a fork
would then be unsafe.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

MODULES = (
    *("numpy", "numpy.random", "numpy.fft", "boto3", "boto3.s3.transfer", "retrying", "psutil"),
    *("torch", "torch.distributed", "torch.utils.data", "torch.distributed.run"),
    *("torch.nn.parallel.distributed", "torch._dynamo", "torch.distributed.fsdp"),
    *("torch.distributed.tensor", "torch.distributed.algorithms.join", "torch.profiler"),
    *("torch.distributed.elastic.agent.server.local_elastic_agent",),
    *("torch.distributed.elastic.rendezvous.static_tcp_rendezvous",),
    *("torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",),
    *("torch.distributed.elastic.rendezvous.registry", "torch.distributed.optim"),
    *("torch._inductor", "torch.utils._sympy.functions"),
    *("multiprocessing.pool", "multiprocessing.spawn", "concurrent.futures.thread"),
    *("asyncio", "runpy", "tarfile", "gzip", "cProfile", "pstats", "colorama", "mpmath", "sympy"),
)
TOOLKITS = ("sagemaker_training.trainer", "sagemaker_pytorch_container.training")
TOOLKIT_PACKAGES = ("sagemaker_training", "sagemaker_pytorch_container")


def preload() -> None:
    """Import the modules that jobs need.

    A module that cannot be imported is skipped. Programs then import it themselves.

    Raises:
        RuntimeError: An import started a thread, which would make forks unsafe.
    """
    # OpenBLAS starts its threads when it is loaded.
    with _variable("OPENBLAS_NUM_THREADS", "1"), _bytecode_is_kept():
        for name in MODULES:
            _import(name)
        _preload_toolkits()
    _keep_service_models()
    _keep_stores()
    gc.collect()
    gc.freeze()  # A garbage collection in a child must not write to, and thereby copy, the shared pages.
    num_threads = len(list(Path("/proc/self/task").iterdir()))
    if num_threads != 1:
        raise RuntimeError(f"{num_threads} threads run after the imports; a fork would be unsafe")


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError as error:
        log.info("not preloaded: %s", error)


def _preload_toolkits() -> None:
    """Load the modules that AWS's toolkits import: import the toolkits, then unload only the toolkits themselves.

    On import, the toolkits read SAGEMAKER_BASE_DIR and create folders, so every program must import them
    itself. Their slow dependencies (boto3, numpy, ...) stay loaded.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        _variable("SAGEMAKER_BASE_DIR", str(Path(scratch, "ml"))),
    ):
        for name in TOOLKITS:
            _import(name)
    forget(TOOLKIT_PACKAGES)


def _keep_service_models() -> None:
    """Make botocore parse each of its JSON files once for all programs, instead of once per program.

    Without this change, every botocore session loads its service models again. AWS's toolkit opens a session to
    download the job's source archive, and the loading of the models takes most of the time for this.
    """
    import boto3  # noqa: PLC0415  (slow import)
    import botocore.loaders  # noqa: PLC0415  (slow import)

    loader = botocore.loaders.JSONFileLoader
    load_once = functools.lru_cache(maxsize=64)(loader().load_file)
    setattr(loader, "load_file", staticmethod(load_once))  # noqa: B010  (mypy rejects an assignment)
    session = boto3.session.Session(
        aws_access_key_id="none",
        aws_secret_access_key="none",  # noqa: S106  (not a secret)
        region_name="us-east-1",
    )
    session.resource("s3", endpoint_url="http://127.0.0.1:1")


def _keep_stores() -> None:
    """Patch torch's static rendezvous to keep its store until the torchrun process ends.

    Without the patch, the torchrun that serves the store drops it after its own last barrier. Any
    torchrun that is still in that barrier then logs an error (torch 2.13,
    elastic/agent/server/api.py, `_exit_barrier`). Remove this function when torch keeps the store
    until all agents have left.
    """
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous  # noqa: PLC0415

    handler = static_tcp_rendezvous.StaticTCPRendezvous
    rendezvous = handler.next_rendezvous
    kept: list[object] = []

    def next_rendezvous(self: Any) -> Any:
        found = rendezvous(self)
        kept.append(self._store)
        return found

    setattr(handler, "next_rendezvous", next_rendezvous)  # noqa: B010  (mypy rejects an assignment)


@contextlib.contextmanager
def _bytecode_is_kept() -> Iterator[None]:
    """Let imports write their bytecode, although PYTHONDONTWRITEBYTECODE is set for the jobs' programs.

    Later imports of the same modules are then faster. Installed modules have no bytecode at first, because uv
    does not compile what it installs. Compiling all modules instead would take twice as
    long as importing them.
    """
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def forget(packages: tuple[str, ...]) -> None:
    """Remove packages from `sys.modules`."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            del sys.modules[name]
