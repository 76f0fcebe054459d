"""Stubs of the programs that jobs start."""

from __future__ import annotations

from pathlib import Path

NAMES = ("python", "python3", "torchrun", "train")
STUB_SOURCE = Path(__file__).with_name("stub.py")


def install_stubs(folder: Path, *, real_python: Path, base_python: Path) -> None:
    """Write the stubs into `folder/bin`.

    `real_python` is the environment's interpreter, which a stub runs if a warm start is not possible. `base_python`
    runs the stub itself.
    """
    target = folder / "bin"
    target.mkdir(parents=True, exist_ok=True)
    source = STUB_SOURCE.read_text(encoding="utf-8")
    source = source.replace("@REAL_PYTHON@", str(real_python))
    source = source.replace("@REAL_BIN@", str(real_python.parent))
    for name in NAMES:
        if not name.startswith("python") and not (real_python.parent / name).exists():
            continue
        fresh = target / f".{name}"
        fresh.write_text(f"#!{base_python} -IS\n{source}", encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(target / name)
