"""Every layout of the training scripts on CUDA and NCCL, compared with one process of train_ddp.py.

    python benchmarks/gpu_layouts.py [--at-once 3] [--only NAME ...]

The layouts are those of the CPU tests. One GPU is enough (see gpu_jobs.py); its speed is then not that of the layout.
The table has, for each layout, the largest relative differences of the losses and of the gradient norms to those of
the reference, which has the same shape. All runs are in float32 without TF32, except the rows with "bf16".

The last lines check a stop: a run that gets SIGTERM after some steps and is started again must end with the losses of
the run without a stop, and a rank that fails must end although its peer does not answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_jobs import EXACT, ScriptRun, device_name, write_tokens

from tests.training_scripts.fsdp.test_modes import LAYOUTS, MORE, SHAPE

SIZE = {
    "num_layers": 4, "num_heads": 4, "hidden_size": 128, "sequence_length": 128,
    "global_batch_size": 8, "max_steps": 8, "warmup_steps": 2, "learning_rate": 0.003,
    "log_interval": 1, "eval_interval": 4, "eval_batches": 2, "checkpoint_interval": -1,
    "num_workers": 0, "num_threads": 1,
}  # fmt: skip
FP32 = {"precision": "fp32", "compile": "false"}
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
"""Largest relative difference of a loss; gradient norms may differ three times as much."""
NORM_FACTOR = 3
COMPILED: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp, bf16, compiled": (1, {}),
    "ddp-2, bf16, compiled": (2, {}),
    "fsdp-2, bf16, compiled": (2, {}),
    "tensor-2, bf16, compiled": (2, {"tensor_parallel_degree": 2}),
    "context-2, bf16, compiled": (2, {"context_parallel_degree": 2}),
    "pipeline-2, bf16, compiled": (2, {"pipeline_parallel_degree": 2}),
    "recomputed, bf16, compiled": (2, {"activation_checkpointing": "selective"}),
    "state-on-the-host, bf16, compiled": (2, {"cpu_offload": "true"}),
}
ZERO: dict[str, tuple[int, dict[str, Any]]] = {
    f"zero-{stage}, {ranks} rank(s){', optimizer on the host' if offload else ''}": (
        ranks,
        {"ds_config": json.dumps({"zero_optimization": {"stage": stage, **offload}})},
    )
    for stage, ranks, offload in (
        (1, 1, {}),
        (1, 2, {}),
        (2, 2, {}),
        (3, 1, {}),
        (3, 2, {}),
        (3, 2, {"offload_optimizer": {"device": "cpu"}}),
    )
}
RESUMED = ("train_ddp.py", "fsdp-2", "tensor-2-fsdp-2", "pipeline-2-fsdp-2", "state-on-the-host")


class Checks:
    """Runs of the layouts in a folder, and their comparison with references."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = write_tokens(folder / "data", vocab_size=256, num_rows=64)
        self._references: dict[str, ScriptRun] = {}
        self.has_failed = False

    def make(self, name: str, script: str, world_size: int, given: dict[str, Any]) -> ScriptRun:
        """Return a run that is not started yet."""
        folder = self._folder / name.replace(" ", "_").replace(",", "")
        return ScriptRun(
            base_dir=folder, data=self._data, script=script, world_size=world_size,
            hyperparameters={**SIZE, **given}, environ=EXACT,
        )  # fmt: skip

    def make_references(self, layouts: list[dict[str, Any]]) -> None:
        """Run one process of train_ddp.py for each shape of the layouts' hyperparameters."""
        for settings in layouts:
            shape = _shape_of(settings)
            key = json.dumps(shape)
            if key not in self._references:
                name = f"reference-{len(self._references)}"
                run = self._references[key] = self.make(name, "train_ddp.py", 1, FP32 | shape)
                run.start()
        for run in self._references.values():
            assert run.wait(300) == [0], run.log()[-3000:]

    def compare(
        self, name: str, script: str, world_size: int, settings: dict[str, Any], precision: str
    ) -> None:
        """Run a layout and print its row."""
        how = FP32 if precision == "fp32" else {"precision": precision, "compile": "true"}
        if script == "train_deepspeed.py":
            how = {"precision": precision}
        reference = self._references[json.dumps(_shape_of(settings))].events("step")
        run = self.make(name, script, world_size, how | settings)
        began = time.monotonic()
        codes = run.run()
        seconds = time.monotonic() - began
        own = run.events("step")
        if codes != [0] * world_size or len(own) != len(reference):
            self.has_failed = True
            print(f"| {name} | {world_size} | exit codes {codes} | | {seconds:.0f} |", flush=True)
            logs = [run.log(rank)[-1500:] for rank in range(world_size)]
            print("\n".join(logs), file=sys.stderr, flush=True)
            return
        loss, norm = (_difference(own, reference, key) for key in ("loss", "gradient_norm"))
        is_equal = loss <= TOLERANCE[precision] and norm <= NORM_FACTOR * TOLERANCE[precision]
        self.has_failed |= not is_equal
        note = "" if is_equal else " DIFFERS"
        print(
            f"| {name} | {world_size} | {loss:.1e}{note} | {norm:.1e} | {seconds:.0f} |", flush=True
        )

    def resume(self, name: str) -> None:
        """Stop a run by SIGTERM, start it again, and print its row beside a run without a stop."""
        layout = (LAYOUTS | MORE).get(name)
        script, world_size, settings = ("train_fsdp.py", *layout) if layout else (name, 1, {})
        given = {**FP32, **settings, "max_steps": 60}
        whole = self.make(f"{name}-whole", script, world_size, given)
        stopped = self.make(f"{name}-stopped", script, world_size, given)
        whole.start()
        stopped.start()
        while len(stopped.events("step")) < 5 and stopped.processes[0].poll() is None:
            time.sleep(0.01)
        stopped.stop()
        codes, again, whole_codes = stopped.wait(120), stopped.run(120), whole.wait(120)
        resumed = {event["step"]: event["loss"] for event in stopped.events("step")}
        first = stopped.events("start")[-1].get("step", 0)
        expected = {event["step"]: event["loss"] for event in whole.events("step")}
        worst = max(abs(resumed.get(step, 0) - loss) / loss for step, loss in expected.items())
        is_right = (
            codes == [143] * world_size
            and again == whole_codes == [0] * world_size
            and first > 0
            and worst <= TOLERANCE["fp32"]
        )
        self.has_failed |= not is_right
        print(f"| {name} | {codes}, then {again} | {first} | {worst:.1e} |", flush=True)

    def fail(self) -> None:
        """Let rank 1 fail while rank 0 does not answer, and print the seconds until rank 1 has ended."""
        run = self.make("failing", "../tests/training_scripts/failing_rank.py", 2, FP32)
        run.start()
        began = time.monotonic()
        while "rank 1 fails" not in run.log(1) and time.monotonic() < began + 100:
            time.sleep(0.01)
        failed = time.monotonic()
        while run.processes[1].poll() is None and time.monotonic() < failed + 60:
            time.sleep(0.01)
        seconds, code = time.monotonic() - failed, run.processes[1].poll()
        run.kill()
        self.has_failed |= code != 1
        print(
            f"\na failed rank, its peer silent: exit code {code} after {seconds:.1f} s", flush=True
        )


def main() -> int:
    """Run the layouts; return 0 if all are equal to their references within the tolerances."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at-once", type=int, default=3, help="layouts that run at the same time")
    parser.add_argument("--only", nargs="*", help="names of layouts; without it, all")
    options = parser.parse_args()
    sharded = LAYOUTS | MORE
    rows = [(name, "train_fsdp.py", *layout, "fp32") for name, layout in sharded.items()]
    rows += [(name, "train_deepspeed.py", *layout, "fp32") for name, layout in ZERO.items()]
    rows += [
        (name, "train_ddp.py" if name.startswith("ddp") else "train_fsdp.py", *layout, "bf16")
        for name, layout in COMPILED.items()
    ]
    rows += [("zero-3, 2 rank(s), bf16", "train_deepspeed.py", *ZERO["zero-3, 2 rank(s)"], "bf16")]
    if options.only is not None:
        rows = [row for row in rows if row[0] in options.only]
    print(f"{device_name()}, {len(rows)} layouts, at most {options.at_once} at once\n")
    with tempfile.TemporaryDirectory(prefix="gpu-layouts-") as folder:
        checks = Checks(Path(folder))
        checks.make_references([row[3] for row in rows])
        print("| layout | ranks | losses | gradient norms | s |\n|---|---|---|---|---|", flush=True)
        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(lambda row: checks.compare(*row), rows))
        print("\n| stopped run | exit codes | resumed after step | losses |\n|---|---|---|---|")
        for name in RESUMED:
            if options.only is None or name in options.only:
                checks.resume(name)
        checks.fail()
    return 1 if checks.has_failed else 0


def _shape_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a layout that set the model's shape."""
    return {name: value for name, value in settings.items() if name in SHAPE}


def _difference(own: list[dict[str, Any]], reference: list[dict[str, Any]], key: str) -> float:
    """Return the largest relative difference of a value of the steps."""
    pairs = zip(own, reference, strict=True)
    return max(abs(mine[key] - theirs[key]) / abs(theirs[key]) for mine, theirs in pairs)


if __name__ == "__main__":
    sys.exit(main())
