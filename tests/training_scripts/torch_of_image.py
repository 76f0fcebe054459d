"""An interpreter with the torch of one of AWS's images, without CUDA's gigabytes.

PyPI's torch is linked against CUDA's libraries. They are not installed: functions that return 0 stand in for them, and
`cudaGetDeviceCount` reports that there is no device. The code that runs on the CPU is torch's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NEEDED_BY_TORCH = (
    *("typing_extensions", "sympy==1.13.1", "mpmath", "networkx", "jinja2", "MarkupSafe"),
    *("fsspec", "filelock", "numpy"),
)
_OF_CUDA = re.compile(
    r"_*(cublas|cudnn|cu[A-Z]|cuda|nccl|nvrtc|nvtx|cufft|curand|cusolver|cusparse|cupti|nvJit)"
)
_NO_DEVICE = 100


def python_with_torch(version: str, folder: Path) -> Path:
    """Install a release of torch below `folder`; return the path of an interpreter that imports it."""
    packages, stubs, python = folder / "packages", folder / "stubs", folder / "python"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages]
    subprocess.run([*install, f"torch=={version}", *_NEEDED_BY_TORCH], check=True)
    stubs.mkdir()
    libraries = sorted((packages / "torch" / "lib").glob("lib*.so*"))
    needed = {name for path in libraries for name in _needed(path)} - {p.name for p in libraries}
    for name in needed:
        if re.match(r"lib(cu|nv|nccl)", name):
            _compile(stubs / name, "")
    names = {name for path in libraries for name in _undefined(path) if _OF_CUDA.match(name)}
    _compile(stubs / "libstub.so", "\n".join(sorted(map(_function, names))))
    python.write_text(
        "#!/bin/sh\n"
        f"export LD_PRELOAD={stubs}/libstub.so LD_LIBRARY_PATH={stubs} PYTHONPATH={packages}\n"
        f'exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return python


def _function(name: str) -> str:
    return f"int {name}(void) {{ return {_NO_DEVICE if name == 'cudaGetDeviceCount' else 0}; }}"


def _compile(path: Path, source: str) -> None:
    """Compile a shared library; its functions are looked up by name, whatever their types."""
    command = ["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{path.name}"]
    subprocess.run([*command, "-x", "c", "-", "-o", path], input=source, text=True, check=True)


def _needed(library: Path) -> list[str]:
    return re.findall(r"NEEDED.*\[(.*)\]", _output("readelf", "-d", library))


def _undefined(library: Path) -> list[str]:
    lines = (line.split() for line in _output("nm", "-D", library).splitlines())
    return [words[1].partition("@")[0] for words in lines if words[0] == "U"]


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
