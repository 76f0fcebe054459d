"""Comparison of sharding with other tools on the same data, in one run: rows/s, MB/s, peak memory, and the ratios.

    python benchmarks/sharding.py [--rows 10000000] [--shards 64] [--repeats 3] [--only trainyard arrow-ipc ...]

Every run is a separate process, whose peak resident memory the kernel reports. The tools take turns, so that other load
affects all of them. Figures are medians. Polars, DuckDB and mosaicml-streaming come from an environment that the first
run creates from `benchmarks/requirements.txt`; tools that cannot be installed are listed. Trainyard does more than the
other tools: it splits by row hash, and writes statistics, SHA-256 of source and shards, and an index.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HOME = ROOT / ".trainyard"
PEERS_PYTHON = HOME / "bench-venv" / "bin" / "python"
PEERS_ONLY = ("polars", "duckdb", "mosaicml")
WITHOUT_DEPENDENCIES = ("mosaicml-streaming==0.13.0", "litdata==0.2.76")


def main() -> None:
    """Generate the data if it is missing, run every tool `repeats` times, print the table."""
    options = _options()
    sys.path.insert(0, str(HERE))
    from sharding_tools import TOOLS

    data = options.folder / f"rows-{options.rows}"
    if not data.exists():
        write_line(f"generating {options.rows} rows in {data}")
        # In a process of its own: this one must stay small, a child's peak counts its parent's size at birth.
        generator = [sys.executable, str(HERE / "sharding_data.py"), str(data), str(options.rows)]
        subprocess.run(generator, check=True)
    data_bytes = sum(path.stat().st_size for path in data.glob("*.parquet"))
    write_line(
        f"data: {options.rows} rows, {data_bytes / 1e6:.0f} MB of Parquet, {os.cpu_count()} cores"
    )
    install_peers()
    results: dict[str, list[dict[str, Any]]] = {tool: [] for tool in options.only or TOOLS}
    for repeat in range(options.repeats):
        for tool, found in results.items():
            result = run(tool, data, options.folder / "out", options.shards)
            found.append(result)
            shown = (
                result.get("failed") or f"{result['rows'] / result['seconds'] / 1e6:.2f} M rows/s"
            )
            write_line(f"[{repeat + 1}/{options.repeats}] {tool}: {shown}")
    write_line(table(results, row_bytes=data_bytes / options.rows))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def run(tool: str, data: Path, out: Path, shards: int) -> dict[str, Any]:
    """Return one run's figures; `failed` holds the reason if there are none."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()  # the run before must not make this one wait for the disk
    python = str(PEERS_PYTHON) if tool.startswith(PEERS_ONLY) else sys.executable
    command = [python, str(HERE / "sharding_tools.py"), tool, str(data), str(out), str(shards)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    )
    output, errors = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(out, ignore_errors=True)
    if process.returncode != 0 or not output:
        last = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        return {"failed": last[0]}
    return {**json.loads(output), "peak_bytes": usage.ru_maxrss * 1024}


def table(results: dict[str, list[dict[str, Any]]], *, row_bytes: float) -> str:
    """Return the medians as a table, with the ratios to the first tool that ran."""
    heading = (
        f"{'tool':20} {'M rows/s':>9} {'(range)':>13} {'MB/s':>7} {'CPU s':>6} {'peak MB':>8} "
        f"{'files':>6} {'our speed':>10} {'our memory':>11}"
    )
    lines = [heading]
    base: dict[str, float] | None = None
    for tool, runs in results.items():
        good = [each for each in runs if "failed" not in each]
        if not good:
            lines.append(f"{tool:20} could not run: {runs[0]['failed'][:90]}")
            continue
        speeds = sorted(each["rows"] / each["seconds"] / 1e6 for each in good)
        median = {
            "speed": statistics.median(speeds),
            "processor": statistics.median(each["processor_seconds"] for each in good),
            "peak": statistics.median(each["peak_bytes"] for each in good),
        }
        base = base or median
        note = "" if good[0]["rows"] > 200_000 or tool == "trainyard" else " (first 200,000 rows)"
        lines.append(
            f"{tool:20} {median['speed']:9.3f} {f'{speeds[0]:.2f}-{speeds[-1]:.2f}':>13} "
            f"{median['speed'] * row_bytes:7.1f} {median['processor']:6.1f} "
            f"{median['peak'] / 1e6:8.0f} {good[0]['files']:6} "
            f"{base['speed'] / median['speed']:9.2f}x {base['peak'] / median['peak']:10.2f}x{note}"
        )
    return "\n".join(lines)


def install_peers() -> None:
    """Create the other tools' environment once; a tool that cannot be installed is reported as failed."""
    if PEERS_PYTHON.exists():
        return
    uv = [sys.executable, "-m", "uv"]
    install = [*uv, "pip", "install", "--quiet", "--python", str(PEERS_PYTHON)]
    commands = [
        [*uv, "venv", "--quiet", "--python", sys.executable, str(PEERS_PYTHON.parents[1])],
        [*install, "--requirement", str(HERE / "requirements.txt")],
        [*install, "--no-deps", *WITHOUT_DEPENDENCIES],
    ]
    for command in commands:
        if subprocess.run(command, check=False).returncode != 0:
            write_line(f"could not run: {' '.join(command)}")
    here = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    for packages in PEERS_PYTHON.parents[1].glob("lib/python*/site-packages"):
        # torch is taken from this environment, after the peers' own packages.
        (packages / "trainyard.pth").write_text(f"{here}\n")


def _options() -> argparse.Namespace:
    parser = peer_parser("Compare sharding with its peers.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=HOME / "bench-data")
    return parser.parse_args()


def peer_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every comparison: repeats, tools and a file for the figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="tools to run; ratios are relative to the first")
    parser.add_argument("--json", type=Path, help="also write every run's figures to this file")
    return parser


def write_line(text: str) -> None:
    """Write a line to stdout at once, so that a long comparison shows its progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
