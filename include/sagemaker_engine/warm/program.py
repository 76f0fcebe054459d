"""Program of a job in a forked process, with the state that a new interpreter would give it."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib.machinery
import io
import os
import random
import resource
import runpy
import signal
import sys
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sagemaker_engine.warm.fitness import Invocation, ProgramKind

if TYPE_CHECKING:
    from collections.abc import Sequence


LINGER_S = 0.1
"""Seconds for which a torchrun waits before it exits.

The torchrun that serves the rendezvous store must not exit before the others have left the last barrier. The shutdown
of a normal interpreter takes longer than this.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run in this process, with the state to apply before it starts.

    The caller is the stub that requested the program.

    - `invocation`: the parsed command line; `command_line`: the arguments as given.
    - `environment`, `folder`, `umask`: environment variables, working directory and umask.
    - `ignored`: numbers of the signals that the caller ignores.
    - `limits`: (soft, hard) limit per resource number; `cores`: CPU affinity.
    - `descriptors`: map from each file descriptor of the caller to its present number in this process.
    - `base_path`: sys.path without the script's folder and PYTHONPATH.
    - `executable`: value of sys.executable.
    """

    invocation: Invocation
    command_line: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    ignored: list[int]
    limits: dict[int, tuple[int, int]]
    cores: set[int]
    descriptors: dict[int, int]
    base_path: list[str]
    executable: str

    def become(self) -> NoReturn:
        """Run the program in this process and exit with the program's exit code."""
        self._take_descriptors()
        self._take_process_state()
        self._take_interpreter_state()
        _reseed()
        _set_num_threads(self.environment.get("OMP_NUM_THREADS"))
        code = run_to_exit_code(self.invocation)
        leave(code, linger_s=LINGER_S if Path(self.invocation.target).name == "torchrun" else 0.0)

    def _take_descriptors(self) -> None:
        keep = set(self.descriptors.values())
        for number in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
            if number not in keep:
                with contextlib.suppress(OSError):
                    os.close(number)
        for wanted, ours in self.descriptors.items():
            os.dup2(ours, wanted, inheritable=True)
        for ours in keep:
            os.close(ours)

    def _take_process_state(self) -> None:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for ignored in (int(signal.SIGPIPE), int(signal.SIGXFSZ), *self.ignored):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(ignored, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for kind, pair in self.limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, pair)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cores)
        os.umask(self.umask)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)

    def _take_interpreter_state(self) -> None:
        sys.argv = self._arguments()
        sys.orig_argv = [self.executable, *self.command_line]
        sys.executable = self.executable
        sys.dont_write_bytecode = bool(self.environment.get("PYTHONDONTWRITEBYTECODE"))
        sys.path[:] = search_path(
            first=first_path(self.invocation),
            extra=self.environment.get("PYTHONPATH", ""),
            base=self.base_path,
        )
        sys.path_importer_cache.clear()
        unbuffered = self.invocation.is_unbuffered or bool(self.environment.get("PYTHONUNBUFFERED"))
        open_standard_streams(
            unbuffered=unbuffered, encoding=self.environment.get("PYTHONIOENCODING", "")
        )

    def _arguments(self) -> list[str]:
        match self.invocation.kind:
            case ProgramKind.SCRIPT:
                return [self.invocation.target, *self.invocation.arguments]
            case ProgramKind.MODULE:
                return ["-m", *self.invocation.arguments]
            case ProgramKind.COMMAND:
                return ["-c", *self.invocation.arguments]


def first_path(invocation: Invocation) -> str:
    """Return sys.path[0]: the script's folder with links resolved, the current folder for -m, or '' for -c."""
    match invocation.kind:
        case ProgramKind.SCRIPT:
            return str(Path(invocation.target).resolve().parent)
        case ProgramKind.MODULE:
            return str(Path.cwd())
        case ProgramKind.COMMAND:
            return ""


def search_path(*, first: str, extra: str, base: Sequence[str]) -> list[str]:
    """Return sys.path as the interpreter builds it: `first`, then PYTHONPATH (`extra`) and `base`, each path once."""
    paths = [os.path.abspath(each) for each in extra.split(os.pathsep)] if extra else []  # noqa: PTH100  (keeps links)
    return [first, *dict.fromkeys([*paths, *base])]


def open_standard_streams(*, unbuffered: bool, encoding: str) -> None:
    """Recreate sys.stdin, stdout and stderr on descriptors 0 to 2, as the interpreter does.

    `encoding` has the format of PYTHONIOENCODING, `encoding:errors`; both parts are optional.
    """
    name, _, errors = encoding.partition(":")
    for stream, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = None
        else:
            opened = _open_stream(
                descriptor, name.lower() or "utf-8", errors or "strict", unbuffered=unbuffered
            )
            raw: Any = getattr(opened.buffer, "raw", opened.buffer)
            raw.name = f"<{stream}>"
        setattr(sys, stream, opened)
        setattr(sys, f"__{stream}__", opened)


def _open_stream(
    descriptor: int, encoding: str, errors: str, *, unbuffered: bool
) -> io.TextIOWrapper:
    is_input = descriptor == 0
    buffer: Any = open(  # noqa: SIM115  (it stays open as long as the process)
        descriptor,
        "rb" if is_input else "wb",
        buffering=0 if unbuffered and not is_input else -1,
        closefd=False,
    )
    text = io.TextIOWrapper(
        buffer,
        encoding=encoding,
        errors="backslashreplace" if descriptor == 2 else errors,
        newline=None if is_input else "\n",
        line_buffering=not unbuffered and (buffer.isatty() or descriptor == 2),
        write_through=unbuffered,
    )
    text.mode = "r" if is_input else "w"  # type: ignore[misc]  # As the interpreter sets it.
    return text


def _reseed() -> None:
    """Reseed the random generators of this process; forks share the parent's state."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _set_num_threads(wanted: str | None) -> None:
    """Set torch's number of threads to `wanted`, the value of OMP_NUM_THREADS.

    The OpenMP library itself reads this variable only once, when the warm parent loads the library. None or an
    invalid value changes nothing.
    """
    torch = sys.modules.get("torch")
    if torch is not None and wanted is not None and wanted.isdigit() and int(wanted) > 0:
        torch.set_num_threads(int(wanted))


def run_to_exit_code(invocation: Invocation) -> int:
    """Run the program in a new `__main__` module and return its exit code."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    vars(module)["__annotations__"] = {}
    sys.modules["__main__"] = module
    try:
        _execute(invocation, module)
    except SystemExit as stop:
        return _exit_code(stop)
    except KeyboardInterrupt:
        _report()
        return -signal.SIGINT
    except BaseException:  # noqa: BLE001  (any exception of the program)
        _report()
        return 1
    return 0


def _execute(invocation: Invocation, module: types.ModuleType) -> None:
    if invocation.kind is ProgramKind.MODULE:
        runpy._run_module_as_main(invocation.target)  # type: ignore[attr-defined]  # noqa: SLF001  (what -m calls)
        return
    if invocation.kind is ProgramKind.COMMAND:
        name, source = "<string>", invocation.target.encode()
        module.__dict__["__loader__"] = importlib.machinery.BuiltinImporter
    else:
        name = os.path.join(Path.cwd(), invocation.target)  # noqa: PTH118  (./x stays ./x)
        source = Path(name).read_bytes()
        module.__dict__["__loader__"] = importlib.machinery.SourceFileLoader("__main__", name)
        module.__dict__["__file__"] = name
        module.__dict__["__cached__"] = None
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  (the job's program)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)  # noqa: T201  (as the interpreter does)
    return 1


def _report() -> None:
    """Print the current exception without the stack frames of this file."""
    kind, value, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if value is not None and kind is not None:
        value = value.with_traceback(trace)
        sys.excepthook(kind, value, trace)


def leave(code: int, *, linger_s: float = 0.0) -> NoReturn:
    """Exit as the interpreter does, but do not tear down modules.

    The teardown can hang: torch's process groups join threads that wait for the interpreter lock (seen with
    gloo, torch 2.13).

    A negative `code` ends the process by signal `-code`. `linger_s` is a wait in seconds before the exit.
    """
    time.sleep(linger_s)
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            step()
        except BaseException:  # noqa: BLE001  (the next step must run in any case)
            _report()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
