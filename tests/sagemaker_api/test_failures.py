"""Every way a job can end is one class of error, and the class says whether another try helps."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import (
    CapacityError,
    ContractError,
    DataError,
    DeviceMemoryError,
    ExpiredCredentialsError,
    HungJobError,
    InfrastructureError,
    JobFailedError,
    JobStoppedError,
    QuotaExceededError,
    QuotaTooSmallError,
    RejectedRequestError,
    ScriptError,
    SpotInterruptionError,
    ThrottledError,
    TimeLimitError,
    TrainingRunError,
)
from trainyard.retry_table import retry_rule
from trainyard.sagemaker_api.failures import (
    NO_CAUSE,
    cause_rank,
    failure_error,
    is_name_taken,
    is_unknown_job,
    service_error,
    telling_lines,
)
from trainyard.sagemaker_api.snapshot import JobSnapshot, Transition
from trainyard.sagemaker_api.stop_cause import StopCause

# torchrun's own words (torch 2.13), from jobs that ran.
TORCHRUN_KILLED = """\
E1121 10:46:21.237000 27 torch/distributed/elastic/multiprocessing/api.py:1002] failed
Traceback (most recent call last):
  File "torchrun", line 10, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
===================================================
train.py FAILED
---------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
---------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:46:21
  host      : algo-2
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 28)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 28
===================================================
"""  # noqa: W291
TORCHRUN_CLEANED_UP = """\
[rank0]: ValueError: boom
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 29)
  traceback : Signal 9 (SIGKILL) received by PID 29
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 28)
"""
NCCL_LOST = "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp, ncclRemoteError\n"
TIMED_OUT = (
    "[rank1]: RuntimeError: [socket.cpp] Timed out waiting 600000ms for recv operation to complete"
)
PEER_GONE = "[rank0]: RuntimeError: [pair.cc:538] Connection closed by peer [10.0.0.2]:4242\n"
TOOLKIT = (
    'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{}"\n'
    'Command "torchrun train_ddp.py", exit code: 1'
)


def ended(reason: str | None = None, **changes: Any) -> JobSnapshot:
    values = {
        "kind": "training",
        "name": "job-1",
        "arn": "arn",
        "status": "Failed",
        "secondary_status": "Failed",
        "failure_reason": reason,
        **changes,
    }
    return JobSnapshot(**values)


LAUNCHER_KILLED = (
    "AlgorithmError: ExecuteUserScriptError:\nExitCode -9\n"
    'ErrorMessage "OutOfMemory: Process killed by SIGKILL (signal 9)"\n'
    'Command "torchrun --nnodes 2 --nproc_per_node 1 train_ddp.py"'
)


BOTO = "botocore.exceptions.ClientError: An error occurred"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (TOOLKIT.format("ValueError: boom"), ScriptError),
        ("ClientError: Data download failed:Insufficient disk space", DataError),
        ("ClientError: Artifact upload failed:Insufficient disk space", ScriptError),
        (TOOLKIT.format("OSError: [Errno 28] No space left on device"), ScriptError),
        (TOOLKIT.format("ModuleNotFoundError: No module named 'x'"), ScriptError),
        (TOOLKIT.format("torch.OutOfMemoryError: CUDA out of memory. Tried"), DeviceMemoryError),
        (TOOLKIT.format("RuntimeError: CUDA out of memory."), DeviceMemoryError),
        (
            TOOLKIT.format(
                "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you"
            ),
            DeviceMemoryError,
        ),
        (TOOLKIT.format("MemoryError: "), DeviceMemoryError),
        (
            "AlgorithmError: OutOfMemory: Process killed by SIGKILL, exit code: 137",
            InfrastructureError,
        ),
        ("AlgorithmError: , exit code: 137", InfrastructureError),
        (LAUNCHER_KILLED, InfrastructureError),
        (LAUNCHER_KILLED.replace("torchrun", "python"), InfrastructureError),
        (TOOLKIT.format(TORCHRUN_KILLED), InfrastructureError),
        (TOOLKIT.format("exitcode  : -9 (pid: 7)"), InfrastructureError),
        (TOOLKIT.format("RuntimeError: Connection closed by peer [10.0.0.2]"), InfrastructureError),
        ("AlgorithmError: rank 0: Another rank failed: a collective ended", InfrastructureError),
        (TOOLKIT.format("torch.distributed.DistBackendError: NCCL error"), InfrastructureError),
        (TOOLKIT.format("Watchdog caught collective operation timeout"), InfrastructureError),
        ("InternalServerError: We encountered an internal error.", InfrastructureError),
        (TOOLKIT.format(f"{BOTO} (SlowDown) when calling the GetObject"), InfrastructureError),
        (TOOLKIT.format(f"{BOTO} (500) when calling the HeadObject"), InfrastructureError),
        (TOOLKIT.format(f"{BOTO} (NoSuchKey) when calling the GetObject"), DataError),
        ("CapacityError: Unable to provision requested ML compute capacity.", CapacityError),
        ("ResourceLimitExceeded: The account-level service limit", QuotaExceededError),
        ("ClientError: Data download failed: No S3 objects found under s3://b/x", DataError),
        ("ClientError: Failed to download data. AccessDenied", DataError),
        ("AlgorithmError: DataError: Training data cannot be used: train is empty", DataError),
        ("ClientError: The processing job exceeded MaxRuntimeInSeconds", TimeLimitError),
        ("AlgorithmError: HyperparameterError: Hyperparameters are not valid: x", ScriptError),
        ("AlgorithmError: , exit code: 3", ScriptError),
        (TOOLKIT.format("traceback : Signal 11 (SIGSEGV) received by PID 9"), ScriptError),
        ("ClientError: something new", JobFailedError),
        (None, JobFailedError),
    ],
    ids=lambda v: str(v)[:60].replace("\n", " ") if not isinstance(v, type) else v.__name__,
)
def test_a_reason_gives_its_class(reason: str | None, kind: type[TrainingRunError]) -> None:
    assert type(failure_error(ended(reason))) is kind


@pytest.mark.parametrize(
    ("secondary", "kind", "says"),
    [
        ("MaxRuntimeExceeded", TimeLimitError, "reached max_run (10 min 00 s) and was stopped"),
        (
            "MaxWaitTimeExceeded",
            SpotInterruptionError,
            "no spot capacity became available within max_wait (20 min 00 s)",
        ),
        ("Stopped", JobStoppedError, "the job was stopped"),
        (None, JobStoppedError, "the job was stopped"),
    ],
)
def test_a_stopped_job_is_never_success_and_says_what_stopped_it(
    secondary: str | None, kind: type[TrainingRunError], says: str
) -> None:
    snapshot = ended(status="Stopped", secondary_status=secondary, max_run_s=600, max_wait_s=1200)

    error = failure_error(snapshot)

    assert type(error) is kind
    assert says in str(error)


@pytest.mark.parametrize(
    ("waited_s", "changes", "kind"),
    [
        (1801, {}, CapacityError),
        (1799, {}, CapacityError),
        (900, {}, JobStoppedError),
        (1801, {"max_pending_s": None}, JobStoppedError),
    ],
    ids=["limit", "late first transition", "stopped early", "no limit"],
)
def test_a_job_that_waited_until_its_pending_limit_got_no_capacity(
    waited_s: int, changes: dict[str, Any], kind: type[TrainingRunError]
) -> None:
    members = {
        "secondary_status": "Stopped",
        "max_pending_s": 1800,
        "transitions": (Transition(status="Pending", start=0, end=waited_s),),
        **changes,
    }

    error = failure_error(ended(status="Stopped", **members))

    assert type(error) is kind
    if kind is CapacityError:
        assert "no instances within max_pending_time_in_seconds (30 min 00 s)" in str(error)


def test_a_job_that_got_instances_after_a_long_wait_was_stopped_by_someone() -> None:
    transitions = (
        Transition(status="Pending", start=0, end=1790),
        Transition(status="Training", start=1790, end=1900),
    )

    error = failure_error(ended(status="Stopped", max_pending_s=1800, transitions=transitions))

    assert type(error) is JobStoppedError


def test_the_exception_is_quoted_and_not_the_lost_peer_after_it() -> None:
    lines = ["ValueError: boom", *PEER_GONE.splitlines()]

    error = failure_error(ended("AlgorithmError: , exit code: 1"), log_lines=lines)

    assert "ValueError: boom" in str(error)
    assert "Connection closed" not in str(error)


@pytest.mark.parametrize(
    ("log", "rank"),
    [
        ("ValueError: boom", 0),
        (f"ValueError: boom\n{PEER_GONE}", 0),
        ("[rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", 1),
        ("ncclRemoteError: A call failed possibly due to a network error", 1),
        (PEER_GONE, NO_CAUSE),
        ("step 7", NO_CAUSE),
    ],
)
def test_a_cause_ranks_above_a_failed_collective_and_that_above_a_lost_peer(
    log: str, rank: int
) -> None:
    assert cause_rank(log.splitlines()) == rank


@pytest.mark.parametrize(
    ("reason", "log", "kind"),
    [
        ("Connection closed by peer", TORCHRUN_KILLED, InfrastructureError),
        ("Connection closed by peer", "ValueError: boom", ScriptError),
        ("Connection closed by peer", "torch.OutOfMemoryError: CUDA out", DeviceMemoryError),
        ("Connection closed by peer", "Connection reset by peer", InfrastructureError),
        ("Connection closed by peer", "all is well", InfrastructureError),
        ("AlgorithmError: , exit code: 1", TORCHRUN_KILLED, InfrastructureError),
        ("AlgorithmError: , exit code: 137", TORCHRUN_KILLED, InfrastructureError),
        ("AlgorithmError: , exit code: 1", "MemoryError: ", DeviceMemoryError),
        (LAUNCHER_KILLED, "Traceback (most recent call last):", InfrastructureError),
        ("AlgorithmError: , exit code: 137", "ExecuteUserScriptError:", InfrastructureError),
        (TOOLKIT.format("KeyError: 'x'"), TORCHRUN_KILLED, ScriptError),
        ("", "KeyError: 'x'", ScriptError),
        (TOOLKIT.format("====="), PEER_GONE + TORCHRUN_KILLED, InfrastructureError),
        (TOOLKIT.format("====="), PEER_GONE + TORCHRUN_CLEANED_UP, ScriptError),
        ("AlgorithmError: , exit code: 1", f"ValueError: boom\n{PEER_GONE}", ScriptError),
        ("Connection closed by peer", f"{NCCL_LOST}ValueError: boom\n{PEER_GONE}", ScriptError),
        (TOOLKIT.format(NCCL_LOST), "ValueError: boom", ScriptError),
        ("AlgorithmError: , exit code: 1", NCCL_LOST, InfrastructureError),
        ("Connection closed by peer", TIMED_OUT, InfrastructureError),
    ],
    ids=lambda v: str(v)[:40].replace("\n", " ") if not isinstance(v, type) else v.__name__,
)
def test_the_logs_decide_where_the_reason_is_an_after_effect(
    reason: str, log: str, kind: type[TrainingRunError]
) -> None:
    assert type(failure_error(ended(reason), log_lines=log.splitlines())) is kind


def test_a_killed_rank_may_be_retried_and_an_exception_may_not() -> None:
    killed = retry_rule(failure_error(ended(TOOLKIT.format(TORCHRUN_KILLED))))
    raised = retry_rule(failure_error(ended(TOOLKIT.format("ValueError: boom"))))

    assert killed is not None
    assert killed.retry
    assert raised is not None
    assert not raised.retry


def test_the_error_names_the_job_the_reason_and_the_log() -> None:
    error = failure_error(ended(TOOLKIT.format("ValueError: boom")), log_hint="in group /aws/x")

    message = str(error)
    assert message.startswith("training job job-1 ended as Failed: the training script failed")
    assert "ValueError: boom" in message
    assert "the job's log is in group /aws/x" in message
    assert isinstance(error, JobFailedError)
    assert error.exit_code == 1


def test_the_line_that_told_the_cause_is_shown_where_no_exception_is_named() -> None:
    error = failure_error(
        ended("All training jobs failed."),
        log_lines=["epoch 1", "AlgorithmError: , exit code: 1"],
    )

    assert isinstance(error, ScriptError)
    assert "AlgorithmError: , exit code: 1" in str(error)


def test_a_processing_jobs_exit_message_is_its_reason() -> None:
    error = failure_error(ended(kind="processing", exit_message="ValueError: no model"))

    assert type(error) is ScriptError


def test_a_processing_job_at_its_limit_was_stopped_by_nobody() -> None:
    reason = "ClientError: The processing job exceeded MaxRuntimeInSeconds"
    stopped = {
        "kind": "processing",
        "status": "Stopped",
        "secondary_status": None,
        "max_run_s": 600,
    }

    error = failure_error(ended(reason, **stopped, exit_message="MemoryError: half way"))

    assert type(error) is TimeLimitError
    assert "reached max_run (10 min 00 s) and was stopped" in str(error)
    assert "checkpoint" not in str(error)
    assert type(failure_error(ended("ValueError: x", **stopped))) is JobStoppedError


@pytest.mark.parametrize("status", ["Completed", "InProgress", "Stopping"])
def test_a_job_that_did_not_fail_has_no_failure(status: str) -> None:
    with pytest.raises(ContractError):
        failure_error(ended(status=status))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", ThrottledError),
        ("SlowDown", ThrottledError),
        ("InternalFailure", ThrottledError),
        ("ServiceFailure", ThrottledError),
        ("CapacityError", CapacityError),
        ("ResourceLimitExceeded", QuotaExceededError),
        ("ValidationException", RejectedRequestError),
        ("AccessDeniedException", RejectedRequestError),
        ("InvalidClientTokenId", RejectedRequestError),
        ("ExpiredToken", ExpiredCredentialsError),
        ("ExpiredTokenException", ExpiredCredentialsError),
        ("RequestExpired", ExpiredCredentialsError),
    ],
)
def test_a_refused_call_gives_its_class(code: str, kind: type[TrainingRunError]) -> None:
    error = service_error(code, "because", operation="CreateTrainingJob")

    assert type(error) is kind
    assert f"{code}: because" in str(error)


@pytest.mark.parametrize(
    ("check", "code", "message", "answer"),
    [
        (is_name_taken, "ResourceInUse", "Job name must be unique", True),
        (is_name_taken, "ValidationException", "Job already exists", True),
        (is_name_taken, "ValidationException", "bad role", False),
        (is_unknown_job, "ValidationException", "Requested resource not found.", True),
        (is_unknown_job, "ResourceNotFound", "", True),
        (is_unknown_job, "ValidationException", "1 validation error detected", False),
        (is_unknown_job, "AccessDenied", "not found", False),
    ],
)
def test_what_an_answer_means(check: Any, code: str, message: str, *, answer: bool) -> None:
    assert check(code, message) is answer


@pytest.mark.parametrize(
    ("cause", "kind", "says"),
    [
        (StopCause.HUNG, HungJobError, "its training logged no progress and was stopped"),
        (StopCause.NO_CAPACITY, CapacityError, "it got no instances within the max_wait_s of"),
    ],
)
def test_a_job_that_we_stopped_says_why(
    cause: StopCause, kind: type[TrainingRunError], says: str
) -> None:
    error = failure_error(ended(status="Stopped", secondary_status="Stopped"), stopped_for=cause)

    assert type(error) is kind
    assert says in str(error)


def test_the_services_own_limit_goes_before_our_stop() -> None:
    snapshot = ended(status="Stopped", secondary_status="MaxWaitTimeExceeded")

    assert type(failure_error(snapshot, stopped_for=StopCause.HUNG)) is SpotInterruptionError


@pytest.mark.parametrize(
    ("limit", "used", "wanted", "kind"),
    [(8, 8, 2, QuotaExceededError), (2, 0, 2, QuotaExceededError), (0, 0, 1, QuotaTooSmallError)],
    ids=["others use it", "just as much", "never enough"],
)
def test_a_quota_that_could_never_hold_the_job_is_not_waited_for(
    limit: int, used: int, wanted: int, kind: type[TrainingRunError]
) -> None:
    message = (
        "The account-level service limit 'ml.p5.48xlarge for training job usage' is "
        f"{limit} Instances, with current utilization of {used} Instances and a request delta of "
        f"{wanted} Instances."
    )

    assert type(service_error("ResourceLimitExceeded", message, operation="Create")) is kind


def test_the_lines_of_a_failure_end_with_what_the_script_refused() -> None:
    toolkit = ["ChildFailedError: ", "train.py FAILED", "ExitCode 1", 'ErrorMessage ""'] * 10
    log = ["usage: train.py [-h]", "train.py: error: unrecognized arguments: --steps 5", *toolkit]

    assert telling_lines(log) == log[:2]


@pytest.mark.parametrize(
    ("operation", "action"),
    [("DeleteObjects", "s3:DeleteObject"), ("ListObjectsV2", "s3:ListBucket")],
)
def test_denied_call_whose_action_has_another_name_names_the_action(
    operation: str, action: str
) -> None:
    error = service_error("AccessDenied", "Access Denied", operation=operation)

    assert error.next_step == f"grant the caller {action}"
