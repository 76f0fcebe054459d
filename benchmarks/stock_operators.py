"""Comparison of the provider's SageMakerTrainingOperator with Trainyard's operator under the same faults.

    python benchmarks/stock_operators.py [--only CASE ...] [--steps 700] [--results FILE]

One real Airflow (scheduler, triggerer, api-server, workers) and one engine run four DAG runs per case at the same time:
the provider's operator and ours, each waiting in the worker and deferred. All run the same script on two spot instances
with the same CheckpointConfig, and have two retries 5 s apart (ours has the delay of its retry table). The script
emulates a training under torchrun, so that eight hosts fit a small machine. A step is a sleep of 0.1 s, and every 50th
step is saved. So is the last step after a SIGTERM, which the same entry point forwards to both. An injected fault comes
when a job has completed 110 steps. When every job has ended, the output has:

* jobs: training jobs created;
* paid: the sum of their BillableTimeInSeconds (per instance) from DescribeTrainingJob. The engine bills 30 % of the
  time that a spot job has instances;
* redone: steps that were executed more than once, over all jobs, by the training's log;
* orphaned: seconds in which a job ran and no task waited for it. They count from the next job's creation, the task's
  end or the deletion of its run to the job's end;
* the task's last state, and the last job's status.

The provider's options are its defaults, except check_interval (1 s instead of 30 s) and max_attempts, which would end a
deferred task after 60 polls and is unlimited here. In the case `half an hour` max_attempts keeps its default of 60, so
that 60 polls 1 s apart represent 60 polls 30 s apart. A table in Markdown ends the output.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import signal
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from checkout import REPOSITORY
from rich.console import Console
from training_jobs import BUCKET, ENDED, IMAGE, PREFIX, ROLE, MeasuredEngine

from chaos.training_log import read_marks
from trainyard.errors import RejectedRequestError
from trainyard.sagemaker_api.training_request import forwarding_entrypoint
from trainyard.stack import process_finder, processes
from trainyard.stack.airflow_api import AirflowApi
from trainyard.stack.command import fork_guarded
from trainyard.stack.home import Home
from trainyard.stack.identity import load_or_create
from trainyard.stack.stack import Stack, is_engine_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.training_log import LogMark

VARIANTS = ("stock_worker", "stock_deferred", "ours_worker", "ours_deferred")
PROGRAM = "count_steps.py"
CODE = f"s3://{BUCKET}/{PREFIX}/code/counting.tar.gz"
STEP_S, CHECKPOINT_INTERVAL, STRUCK_STEP = 0.1, 50, 110
POLL_S = 0.5
CASE_LIMIT_S = 420.0
TASK_ENDS = ("success", "failed", "upstream_failed", "skipped", "removed")


@dataclass(slots=True, kw_only=True)
class Contestant:
    """One DAG run of a case, with its known state."""

    variant: str
    dag_id: str
    run_id: str
    job_prefix: str
    began_at: float = field(default_factory=time.time)
    instance_id: str = ""
    struck_at: float | None = None
    task_state: str = "waiting"
    ended_at: float | None = None
    jobs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockOutcome:
    """Result of one DAG run."""

    case: str
    variant: str
    jobs: int
    paid_s: int
    steps_redone: int
    orphaned_s: float
    task_state: str
    job_status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StockCase:
    """One fault: its moment, the function that executes it, and the DAG settings that it needs.

    `strike` is called once for each contestant when its job has done STRUCK_STEP; None if another part executes the
    fault.
    """

    name: str
    strike: Callable[[Scene, Contestant], None] | None = None
    faults: Sequence[dict[str, Any]] = ()
    kind: str = "plain"
    max_runtime_s: int = 1800


class Rest(AirflowApi):
    """The launcher's client, with more of a user's actions in the UI."""

    def mark_failed(self, contestant: Contestant) -> None:
        """Mark a contestant's task failed."""
        path = f"/dags/{contestant.dag_id}/dagRuns/{quote(contestant.run_id)}/taskInstances/train"
        self._call("PATCH", path, body={"new_state": "failed"})

    def clear(self, contestant: Contestant) -> None:
        """Clear a contestant's task."""
        body = {
            "dry_run": False,
            "task_ids": ["train"],
            "dag_run_id": contestant.run_id,
            "only_failed": False,
        }
        self._call("POST", f"/dags/{contestant.dag_id}/clearTaskInstances", body=body)

    def delete(self, contestant: Contestant) -> None:
        """Mark a contestant's DAG run failed, without which Airflow does not delete it, and delete it at once."""
        self.fail_run(contestant.dag_id, contestant.run_id)
        self._call("DELETE", f"/dags/{contestant.dag_id}/dagRuns/{quote(contestant.run_id)}")
        contestant.task_state, contestant.ended_at = "deleted", time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The running stack, with the operations that the cases use."""

    stack: Stack
    api: Rest
    engine: MeasuredEngine


def kill_worker_or_triggerer(scene: Scene, contestant: Contestant) -> None:
    """Kill the process that waits for the job: the task's worker, or the triggerer of a deferred task."""
    home = scene.stack.home
    pid = process_finder.busy_workers(home).get(contestant.instance_id)
    if contestant.variant == "ours_deferred":
        return  # the triggerer is one for both deferred tasks; it was killed for the other
    if contestant.variant == "stock_deferred":
        pid = process_finder.find(home, "triggerer")
    assert pid is not None, f"nothing waits for {contestant}"
    processes.signal_all([pid], signal.SIGKILL)


def stop_job(scene: Scene, contestant: Contestant) -> None:
    """Stop the running job as a user."""
    (name,) = (j["TrainingJobName"] for j in contestant.jobs if j["TrainingJobStatus"] not in ENDED)
    scene.engine.sagemaker.stop_training_job(TrainingJobName=name)


def in_training(what: str, **members: Any) -> list[dict[str, Any]]:
    """Return a fault of the engine for each contestant's first job."""
    fault = {"what": what, "at": {"step": STRUCK_STEP}, **members}
    return [{"id": each, "job": f"{each.replace('_', '-')}*", **fault} for each in VARIANTS]


CASES = (
    StockCase(name="worker (or triggerer) killed -9", strike=kill_worker_or_triggerer),
    StockCase(name="task cleared while it runs", strike=lambda scene, c: scene.api.clear(c)),
    StockCase(
        name="task marked failed",
        strike=lambda scene, c: scene.api.mark_failed(c),
    ),
    StockCase(name="execution_timeout", kind="timeout"),
    StockCase(name="DAG run failed and deleted", strike=lambda scene, c: scene.api.delete(c)),
    StockCase(name="job stopped by hand", strike=stop_job),
    StockCase(name="a rank killed -9", faults=in_training("kill_rank", hosts=["algo-2"])),
    StockCase(name="spot interruption, no notice", faults=in_training("interrupt", notice_s=0)),
    StockCase(name="MaxRuntimeInSeconds", max_runtime_s=30),
    StockCase(name="half an hour (60 polls)", kind="limit"),
)


def main() -> int:
    """Run the missing cases, print the table, and return the exit status."""
    options = _parser().parse_args()
    fork_guarded()
    console = Console(soft_wrap=True)
    outcomes = read_outcomes(options.results)
    wanted = [case for case in CASES if not options.only or case.name in options.only]
    missing = [case for case in wanted if not any(each.case == case.name for each in outcomes)]
    if missing:
        with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
            scene = set_up(Path(folder), console)
            try:
                for case in missing:
                    found = run_case(scene, case, steps=options.steps, console=console)
                    outcomes += found
                    append(options.results, found)
            finally:
                scene.stack.stop()
    print(table(outcomes))
    return 0


def set_up(folder: Path, console: Console) -> Scene:
    """Start a stack whose DAGs are those of this benchmark, with data and code in its engine."""
    tree = folder / "repository"
    tree.mkdir()
    for name in ("include", "plugins", "training_scripts"):
        (tree / name).symlink_to(REPOSITORY / name)
    (tree / "dags").symlink_to(REPOSITORY / "benchmarks" / "stock_operators_dags")
    home = Home(path=folder / "home", project=tree)
    stack = Stack(home, print_line=lambda line: console.print(line, style="dim", markup=False))
    stack.start()
    api = Rest(stack.addresses.ui, password=load_or_create(home).password)
    last = "ours_deferred_limit"
    stack.wait_until(lambda: api.health() is not None, what="the api-server's first answer")
    stack.wait_until(lambda: is_engine_ready(stack.addresses.engine), what="the engine")
    stack.wait_until(lambda: api.has_dag(last), what=f"parsing of the DAGs ({api.import_errors()})")
    engine = MeasuredEngine(stack.addresses.engine)
    upload_code(engine)
    return Scene(stack=stack, api=api, engine=engine)


def upload_code(engine: MeasuredEngine) -> None:
    """Upload the counting script for the jobs."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(REPOSITORY / "benchmarks" / "stock_operators_code" / PROGRAM, arcname=PROGRAM)
    key = CODE.removeprefix(f"s3://{BUCKET}/")
    engine.s3.put_object(Bucket=BUCKET, Key=key, Body=archive.getvalue())


def run_case(scene: Scene, case: StockCase, *, steps: int, console: Console) -> list[StockOutcome]:
    """Run one case with all four variants at the same time and return their outcomes."""
    console.rule(case.name)
    scene.engine.put_faults(list(case.faults))
    contestants = [start(scene, case, variant, steps=steps) for variant in VARIANTS]
    deadline = time.monotonic() + CASE_LIMIT_S
    while not all(is_over(each) for each in contestants):
        if time.monotonic() > deadline:
            console.print(f"cut off after {CASE_LIMIT_S:.0f} s", style="red")
            break
        scene.stack.check()
        with suppress(requests.RequestException):
            for contestant in contestants:
                look(scene, contestant)
                is_whole = case.strike is not None and contestant.struck_at is None
                if is_whole and has_done(scene, contestant, STRUCK_STEP):
                    contestant.struck_at = time.time()
                    case.strike(scene, contestant)
        time.sleep(POLL_S)
    outcomes = [outcome(scene, case, each) for each in contestants]
    for each in outcomes:
        console.print(str(each), markup=False, highlight=False)
    return outcomes


def start(scene: Scene, case: StockCase, variant: str, *, steps: int) -> Contestant:
    """Trigger one variant's DAG run."""
    dag_id = f"{variant}_{case.kind}"
    slug = re.sub(r"[^a-z]+", "-", case.name.lower()).strip("-")
    name = f"{variant.replace('_', '-')}-{slug}"[:40].strip("-")
    request = counting_job(name, steps=steps, max_runtime_s=case.max_runtime_s)
    scene.api.set_paused(dag_id, paused=False)
    conf = {"request": request, "spec": spec_of(request)}
    run_id = scene.api.trigger(dag_id, conf=conf)
    prefix = name if variant.startswith("stock") else f"{dag_id.replace('_', '-')}-train"
    return Contestant(variant=variant, dag_id=dag_id, run_id=run_id, job_prefix=prefix)


def counting_job(name: str, *, steps: int, max_runtime_s: int) -> dict[str, Any]:
    """Return the CreateTrainingJob request for the provider's operator."""
    hyperparameters = {
        "max_steps": steps,
        "step_seconds": STEP_S,
        "checkpoint_interval": CHECKPOINT_INTERVAL,
        "sagemaker_program": PROGRAM,
        "sagemaker_submit_directory": CODE,
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": "ml.m5.xlarge",
        "sagemaker_mpi_num_of_processes_per_host": 1,
    }
    entrypoint, arguments = forwarding_entrypoint(PROGRAM)
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": list(entrypoint),
            "ContainerArguments": list(arguments),
        },
        "RoleArn": ROLE,
        "HyperParameters": {key: json.dumps(value) for key, value in hyperparameters.items()},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/{PREFIX}/output/{name}"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 2,
            "VolumeSizeInGB": 10,
        },
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {
            "MaxRuntimeInSeconds": max_runtime_s,
            "MaxWaitTimeInSeconds": 3600,
        },
        "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{PREFIX}/checkpoints/{name}"},
    }


def spec_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the same job as a spec for our operator."""
    decoded = {key: json.loads(value) for key, value in request["HyperParameters"].items()}
    return {
        "role": ROLE,
        "output_path": request["OutputDataConfig"]["S3OutputPath"],
        "image_uri": IMAGE,
        "entry_point": PROGRAM,
        "source_dir": CODE,
        "forward_sigterm": True,
        "distribution": {"torch_distributed": {"enabled": True, "processes_per_host": 1}},
        "hyperparameters": {
            key: value for key, value in decoded.items() if not key.startswith("sagemaker_")
        },
        "instance_type": "ml.m5.xlarge",
        "instance_count": 2,
        "volume_size": 10,
        "max_run": request["StoppingCondition"]["MaxRuntimeInSeconds"],
        "max_wait": request["StoppingCondition"]["MaxWaitTimeInSeconds"],
        "use_spot_instances": True,
        "checkpoint_s3_uri": request["CheckpointConfig"]["S3Uri"],
    }


def look(scene: Scene, contestant: Contestant) -> None:
    """Update the known state of a contestant."""
    listed = scene.engine.sagemaker.list_training_jobs(
        NameContains=contestant.job_prefix,
        SortBy="CreationTime",
        SortOrder="Ascending",
        MaxResults=100,
    )["TrainingJobSummaries"]
    contestant.jobs = [
        scene.engine.sagemaker.describe_training_job(TrainingJobName=each["TrainingJobName"])
        for each in listed
        if each["CreationTime"].timestamp() >= contestant.began_at
    ]
    if contestant.task_state == "deleted":
        return
    try:
        (task,) = scene.api.tasks(contestant.dag_id, contestant.run_id)
        run = scene.api.run(contestant.dag_id, contestant.run_id)
    except RejectedRequestError:  # the run is being deleted
        return
    contestant.instance_id = str(task["id"])
    contestant.task_state = str(task["state"])
    has_ended = task["state"] in TASK_ENDS and run["state"] in {"success", "failed"}
    if not has_ended:
        contestant.ended_at = None
    elif contestant.ended_at is None:
        contestant.ended_at = time.time()


def has_done(scene: Scene, contestant: Contestant, step: int) -> bool:
    """Return whether the contestant's first job has completed a number of steps."""
    return any(mark.step >= step for mark in marks_of(scene, contestant))


def is_over(contestant: Contestant) -> bool:
    """Return whether task and jobs have ended."""
    jobs_ended = all(job["TrainingJobStatus"] in ENDED for job in contestant.jobs)
    return contestant.ended_at is not None and bool(contestant.jobs) and jobs_ended


def outcome(scene: Scene, case: StockCase, contestant: Contestant) -> StockOutcome:
    """Return the outcome of a contestant."""
    jobs = contestant.jobs
    return StockOutcome(
        case=case.name,
        variant=contestant.variant,
        jobs=len(jobs),
        paid_s=sum(job.get("BillableTimeInSeconds", 0) for job in jobs),
        steps_redone=steps_redone(marks_of(scene, contestant)),
        orphaned_s=orphaned_s(contestant),
        task_state=contestant.task_state,
        job_status=jobs[-1]["TrainingJobStatus"] if jobs else "none",
    )


def steps_redone(marks: Sequence[LogMark]) -> int:
    """Return the number of repetitions of steps that more than one start printed."""
    steps = [mark.step for mark in marks if not mark.is_start and mark.step]
    return len(steps) - len(set(steps))


def orphaned_s(contestant: Contestant) -> float:
    """Return the seconds in which jobs ran without a task that waited for them."""
    until = [job["CreationTime"].timestamp() for job in contestant.jobs[1:]]
    waited_until = [*until, contestant.ended_at or time.time()]
    return sum(
        max(0.0, job.get("TrainingEndTime", job["LastModifiedTime"]).timestamp() - at)
        for job, at in zip(contestant.jobs, waited_until, strict=True)
    )


def marks_of(scene: Scene, contestant: Contestant) -> list[LogMark]:
    """Return the progress that the contestant's jobs have printed."""
    return read_marks(scene.engine.logs, [job["TrainingJobName"] for job in contestant.jobs])


def table(outcomes: Sequence[StockOutcome]) -> str:
    """Return the outcomes as a table in Markdown, with one row per case and variant."""
    head = "| fault | operator | jobs | paid s | steps redone | orphaned s | task | last job |"
    rows = [head, "|---|---|---|---|---|---|---|---|"]
    names = {"stock": "provider's", "ours": "ours"}
    for each in outcomes:
        name, mode = each.variant.split("_")
        rows.append(
            f"| {each.case} | {names[name]}, {mode} | {each.jobs} | {each.paid_s} | "
            f"{each.steps_redone} | {each.orphaned_s:.0f} | {each.task_state} | {each.job_status} |"
        )
    return "\n".join(rows)


def read_outcomes(path: Path) -> list[StockOutcome]:
    """Return the outcomes in the file."""
    if not path.exists():
        return []
    return [StockOutcome(**json.loads(line)) for line in path.read_text().splitlines()]


def append(path: Path, outcomes: Sequence[StockOutcome]) -> None:
    """Add a case's outcomes to the file."""
    with path.open("a") as file:
        file.writelines(json.dumps(asdict(each)) + "\n" for each in outcomes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], metavar="CASE")
    parser.add_argument("--steps", type=int, default=700, help="steps of each job (700)")
    parser.add_argument(
        "--results", type=Path, default=Path("stock_operators.jsonl"), help="the file of results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
