"""Comparison of the training loader with streaming loaders, from the engine's S3, in one run.

    python benchmarks/loader.py [--samples 20000] [--length 1024] [--repeats 3] [--only trainyard litdata ...]

Every tool reads the same samples of random token ids into batches (int64, shuffled), in its own format with the same
number of files. Each run is a separate process without loader workers and with an empty cache, as on a new host. The
tools take turns, so that other load affects all of them. Figures are medians. Measurements:

* the seconds until the first batch, and samples per second in the first and in the second epoch. Those of the first
  include the time from the start, without imports: Trainyard copies all shards and checks them, the other tools stream;
* a run that ends in the middle of the first epoch, and a new process that resumes by the tool's own state: the seconds
  until its first batch, and whether both together have the samples of an unbroken run, in the same order.

The other tools come from an environment that the first run creates from `benchmarks/requirements.txt`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checkout
from engine import start_ours
from loader_tools import TOOLS, ToolOptions
from sharding import PEERS_PYTHON, install_peers, peer_parser, write_line

if TYPE_CHECKING:
    import argparse

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write the data, run every tool `repeats` times, and print the table."""
    options = _options()
    install_peers()
    root = Path(tempfile.mkdtemp(prefix="trainyard-benchmark-", dir=options.folder))
    server = start_ours(root, alone=True)
    tools = options.only or list(TOOLS)
    runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    try:
        common = {
            "num_samples": options.samples,
            "length": options.length,
            "batch_size": options.batch_size,
            "num_files": options.files,
            "endpoint": f"http://127.0.0.1:{server.port}",
        }
        for tool in tools:
            prepare(tool, root, server.client("s3"), common)
        for number in range(options.repeats):
            for tool in tools if number % 2 == 0 else reversed(tools):
                runs[tool].append(run(tool, root, common))
                write_line(f"[{number + 1}/{options.repeats}] {tool}: {shown(runs[tool][-1])}")
    finally:
        server.process.terminate()
        server.process.wait()
        shutil.rmtree(root)
    load = " ".join(f"{each:.0f}" for each in os.getloadavg())
    write_line(
        f"\n{options.samples} samples of {options.length} ids; {os.cpu_count()} cores, load {load}\n"
    )
    write_line(table(runs))
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1))


def prepare(tool: str, root: Path, client: Any, common: dict[str, Any]) -> None:
    """Write the data in the tool's format, and copy it to a bucket with the tool's name."""
    folder = root / "written" / tool
    folder.mkdir(parents=True)
    _process(ToolOptions(tool=tool, action="prepare", folder=str(folder), **common))
    client.create_bucket(Bucket=tool)
    written = [path for path in sorted((folder / "out").rglob("*")) if path.is_file()]
    for path in written:
        client.upload_file(str(path), tool, path.relative_to(folder / "out").as_posix())
    size = sum(path.stat().st_size for path in written)
    write_line(f"{tool}: {len(written)} files, {size / 1e6:.0f} MB")
    shutil.rmtree(folder)


def run(tool: str, root: Path, common: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of two epochs, and of a resume in the middle of the first."""
    found = {}
    for action in ("epochs", "half", "resume"):
        folder = root / "cache"
        folder.mkdir()
        state = str(root / f"{tool}.state")
        found[action] = _process(
            ToolOptions(
                tool=tool, action=action, folder=str(folder), bucket=tool, state=state, **common
            )
        )
        shutil.rmtree(folder)
    whole, half, rest = (each.pop("samples") for each in found.values())
    return {
        "first_batch": found["epochs"]["first_batch"],
        "speeds": [count / seconds for count, seconds in found["epochs"]["epochs"]],
        "processor_seconds": found["epochs"]["processor_seconds"],
        "peak_bytes": found["epochs"]["peak_bytes"],
        "resumed": found["resume"]["first_batch"],
        "order": compared(whole, half + rest),
    }


def compared(whole: list[int], resumed: list[int]) -> str:
    """Return as text whether a resumed epoch has the samples of an unbroken one."""
    if whole == resumed:
        return "exact"
    if Counter(whole) == Counter(resumed):
        return "each sample once, in another order"
    missing = len(set(whole) - set(resumed))
    repeated = len(resumed) - len(set(resumed))
    return f"{missing} samples missing, {repeated} repeated"


def shown(figures: dict[str, Any]) -> str:
    """Return the figures of one run as text."""
    speeds = " / ".join(f"{speed:.0f}" for speed in figures["speeds"])
    return f"{speeds} samples/s, resume {figures['resumed']:.2f} s, {figures['order']}"


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the medians as a table, with the ratios of speeds to the first tool's."""

    def median(tool: str, name: str) -> float:
        return statistics.median(each[name] for each in runs[tool])

    def speeds(tool: str, epoch: int) -> list[float]:
        return sorted(each["speeds"][epoch] for each in runs[tool])

    heading = (
        "| tool | first batch, s | samples/s, epoch 1 (range) | epoch 2 (range) | ratios | CPU s | peak MB "
        "| resume, s | resumed epoch |"
    )
    lines = [heading, "|---|---|---|---|---|---|---|---|---|"]
    base = next(iter(runs))
    for tool, found_runs in runs.items():
        cells, ratios = [], []
        for epoch in (0, 1):
            found = speeds(tool, epoch)
            middle = statistics.median(found)
            cells.append(f"{middle:,.0f} ({found[0]:,.0f} - {found[-1]:,.0f})")
            ratios.append(f"{statistics.median(speeds(base, epoch)) / middle:.2f}")
        orders = " or ".join(sorted({each["order"] for each in found_runs}))
        lines.append(
            f"| {tool} | {median(tool, 'first_batch'):.2f} | {cells[0]} | {cells[1]} | {', '.join(ratios)} "
            f"| {median(tool, 'processor_seconds'):.1f} | {median(tool, 'peak_bytes') / 1e6:.0f} "
            f"| {median(tool, 'resumed'):.2f} | {orders} |"
        )
    return "\n".join(lines)


def _process(options: ToolOptions) -> dict[str, Any]:
    """Run one action, and return its figures with the peak resident memory.

    Raises:
        RuntimeError: the process failed.
    """
    python = sys.executable if options.tool == "trainyard" else str(PEERS_PYTHON)
    settings = {name: getattr(options, name) for name in options.__dataclass_fields__}
    process = subprocess.Popen(
        [python, str(HERE / "loader_tools.py"), json.dumps(settings)],
        cwd=checkout.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{options.tool}, {options.action}: {errors.strip()[-2000:]}")
    last = output.strip().splitlines()[-1:]
    return json.loads(last[0]) if options.action != "prepare" else {}


def _options() -> argparse.Namespace:
    parser = peer_parser("Compare the training loader with its peers.")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=1024, help="token ids of a sample")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--files", type=int, default=16, help="files of each format")
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder")
    return parser.parse_args()


if __name__ == "__main__":
    main()
