"""Hyperparameters of a training job: names, types, limits, defaults, and their parser.

They are read from the JSON in `SM_HPS`, where every value may be a string; command-line options of the same
names override them. All problems are reported together. Each finding has the value and the allowed values or, for an
unknown name, the nearest known name.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from trainer.decoder_config import GPTConfig, RopeScaling
from trainer.llama.config import read_config, shape_findings
from trainer.step_spans import read_spans, read_steps
from trainyard_watch.errors import DataError, HyperparameterError
from trainyard_watch.statistics.choice import read_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

IGNORED_PREFIXES = ("sagemaker_", "_tuning_")
IGNORED_NAMES = ("mp_parameters",)
_INVALID = object()
TRUE_WORDS, FALSE_WORDS, NONE_WORDS = (
    ("true", "1", "yes"),
    ("false", "0", "no"),
    ("", "none", "null"),
)


def setting(
    default: Any,
    text: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return the dataclass field of a hyperparameter: its default, description and limits."""
    limits = {"at_least": at_least, "at_most": at_most, "above": above}
    metadata = {
        "help": text,
        "choices": choices,
        "limits": {k: v for k, v in limits.items() if v is not None},
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """One set of hyperparameters; `load` validates and reports every problem at once.

    A script with additional hyperparameters adds fields in a subclass.
    """

    model: str = setting("gpt", "kind of model", choices=("gpt", "mlp"))
    num_layers: int = setting(4, "decoder blocks, or hidden layers of the MLP", at_least=1)
    num_heads: int = setting(4, "attention heads (gpt)", at_least=1)
    hidden_size: int = setting(128, "width of the model", at_least=1)
    sequence_length: int = setting(256, "tokens of one sample (gpt)", at_least=1)
    dropout: float = setting(0.0, "dropout probability", at_least=0, at_most=0.95)
    num_kv_heads: int | None = setting(
        None, "heads of keys and values, a divisor of num_heads (gpt); null = num_heads", at_least=1
    )
    feed_forward_size: int | None = setting(
        None,
        "inner width of the feed-forward layer (gpt); null = 8/3 of hidden_size, as a multiple of 32",
        at_least=1,
    )
    norm_eps: float = setting(1e-6, "epsilon of the norms (gpt)", above=0)
    rope_theta: float = setting(10_000.0, "base of the rotary frequencies (gpt)", above=0)
    rope_scaling: str | None = setting(
        None, "Llama 3's scaling of the rotary frequencies (gpt), as rope_scaling in config.json"
    )
    tied_embeddings: bool = setting(
        False, "use the embedding as the matrix of the logits, too (gpt)"
    )

    global_batch_size: int = setting(
        16, "samples of one optimizer step, over all ranks", at_least=1
    )
    micro_batch_size: int | None = setting(
        None,
        "samples of one forward pass of a rank; null = as many as the "
        "rank's part of the global batch",
        at_least=1,
    )
    max_steps: int = setting(
        400, "optimizer steps of the whole run; 0 = as many as `epochs` need", at_least=0
    )
    epochs: float = setting(
        0.0, "passes over the training split; 0 = until `max_steps`", at_least=0
    )

    learning_rate: float = setting(4e-3, "peak learning rate", above=0)
    reference_batch_size: int | None = setting(
        None, "global batch size that `learning_rate` was tuned for; null = no scaling", at_least=1
    )
    learning_rate_scaling: str = setting(
        "linear", "scaling of the learning rate with the batch size", choices=("linear", "sqrt")
    )
    weight_decay: float = setting(0.1, "AdamW weight decay of matrices", at_least=0)
    warmup_steps: int | None = setting(
        None, "steps of linear warm-up; null = a tenth of the run", at_least=0
    )
    min_learning_rate_ratio: float = setting(
        0.1, "final learning rate as a share of the peak", at_least=0, at_most=1
    )
    clip_norm: float = setting(1.0, "gradient norm limit; 0 = no clipping", at_least=0)

    precision: str = setting(
        "auto",
        "arithmetic of the forward pass; auto = bf16 on GPUs that have it, otherwise fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
    )
    compile: bool | None = setting(
        None, "run the model through torch.compile; null = on GPUs that have bf16"
    )
    num_workers: int | None = setting(
        None,
        "data loading processes of each rank; null = on GPUs 2, or fewer if SM_NUM_CPUS is small; on CPUs 0",
        at_least=0,
    )
    num_threads: int = setting(
        0, "CPU threads of each rank; 0 = processors / ranks on this machine", at_least=0
    )
    verify_shards: bool = setting(True, "check every shard's SHA-256 before training")
    distributed_timeout_s: float = setting(600.0, "seconds a rank waits for the others", above=0)

    eval_interval: int = setting(50, "steps between evaluations; 0 = only at the end", at_least=0)
    eval_batches: int = setting(
        8, "global batches of one evaluation; 0 = the whole validation split", at_least=0
    )
    test_samples: int = setting(
        0,
        "samples of the test split that are measured at the end, into evaluation.json; 0 = none",
        at_least=0,
    )
    early_stopping_patience: int = setting(
        0, "evaluations without a better validation loss before the run stops; 0 = off", at_least=0
    )
    checkpoint_interval: int = setting(
        0,
        "steps between checkpoints; 0 = chosen from their measured cost and "
        "mean_time_to_interruption_s; -1 = only at the end and at SIGTERM",
        at_least=-1,
    )
    mean_time_to_interruption_s: float = setting(
        3600.0,
        "expected seconds between interruptions (checkpoint_interval 0); the run's own rate is used if it is higher",
        above=0,
    )
    keep_checkpoints: int = setting(
        0,
        "newest checkpoints to keep; 0 = two, or only one if it is large and complete in S3",
        at_least=0,
    )
    checkpoint_dir: str | None = setting(
        None, "folder of the checkpoints; null = <base>/checkpoints"
    )
    seed: int = setting(
        0, "seed of the weights, the sample order and dropout", at_least=0, at_most=2**63 - 1
    )
    log_interval: int = setting(10, "steps between metric lines", at_least=1)
    profile_steps: int = setting(
        0, "last steps that are profiled, for the share of collectives; they are slower", at_least=0
    )
    trace_steps: str | None = setting(
        None, "steps that torch.profiler traces, first:last such as 10:13, several with commas"
    )
    statistics: str = setting(
        "on",
        "statistics for the rules that watch the run: on, off, or JSON of collection -> its "
        "parameters; on = those of the job's DebugHookConfig, if it has one",
    )
    tensorboard_dir: str | None = setting(
        None, "folder of TensorBoard's scalars; null = that of the job's TensorBoardOutputConfig"
    )
    on_non_finite: str = setting(
        "fail",
        "action on a step whose loss or gradient is NaN or infinite",
        choices=("fail", "skip"),
    )
    most_skipped_steps: int = setting(
        5, "skipped steps in a row after which the run fails (on_non_finite skip)", at_least=1
    )
    skip_steps: str | None = setting(
        None,
        "steps whose batches are read and dropped, as steps and spans first:last with commas, "
        "such as 77 or 77,80:82",
    )
    target_column: str | None = setting(None, "column to predict (mlp); null = the index's target")
    problem: str = setting(
        "auto",
        "kind of the target (mlp)",
        choices=("auto", "classification", "regression"),
    )

    @classmethod
    def load(cls, sm_hps: str, argv: Sequence[str] = ()) -> Self:
        """Return the values of the JSON text `sm_hps`, overridden by the options `argv`.

        Raises:
            HyperparameterError: a name is unknown, a value has the wrong type or is outside its
                limits, or values contradict each other; all findings at once.
        """
        findings: list[str] = []
        given = cls.translate(_decode(sm_hps)) | _options(cls, argv, findings)
        fields = {item.name: item for item in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name in IGNORED_NAMES or name.startswith(IGNORED_PREFIXES):
                continue
            if name not in fields:
                findings.append(_unknown(cls, name, where="hyperparameter"))
                continue
            try:
                values[name] = _convert(value, fields[name])
            except ValueError as error:
                findings.append(f"hyperparameter {name!r}: got {value!r}; allowed: {error}")
        candidate = cls(**values)
        findings += candidate.contradictions()
        if findings:
            raise HyperparameterError(findings)
        return candidate

    @classmethod
    def translate(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of `given`.

        A subclass overrides this method if its script also accepts values under other names or in other forms.
        The override converts them to the names and forms of the fields.
        """
        return dict(given)

    def contradictions(self) -> list[str]:
        """Return one sentence per contradictory combination of values."""
        findings = []
        if self.model == "gpt" and self.hidden_size % (2 * self.num_heads):
            allowed = [n for n in range(1, self.hidden_size + 1) if self.hidden_size % (2 * n) == 0]
            next_step = (
                f"num_heads may be one of {allowed[:12]}" if allowed else "make hidden_size even"
            )
            findings.append(
                f"hidden_size {self.hidden_size} with num_heads {self.num_heads}: each head needs the same even width; "
                f"{next_step}"
            )
        if self.model == "gpt" and self.num_kv_heads and self.num_heads % self.num_kv_heads:
            allowed = [n for n in range(1, self.num_heads + 1) if self.num_heads % n == 0]
            findings.append(
                f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}; it may be one of "
                f"{allowed}"
            )
        findings += self._rope_findings()
        if not self.max_steps and not self.epochs:
            findings.append(
                "max_steps and epochs are both 0: set one of them, or the run has no end"
            )
        if self.max_steps and (self.warmup_steps or 0) > self.max_steps:
            findings.append(
                f"warmup_steps {self.warmup_steps} is more than max_steps {self.max_steps}: the learning rate would "
                f"never reach its peak; choose at most {self.max_steps}"
            )
        if self.micro_batch_size and self.global_batch_size % self.micro_batch_size:
            findings.append(
                f"global_batch_size {self.global_batch_size} is not a multiple of micro_batch_size "
                f"{self.micro_batch_size}; change one of them"
            )
        findings += self._trace_findings()
        findings += findings_of(read_steps, self.skip_steps)
        if self.statistics not in {"on", "off"}:
            findings += findings_of(read_setting, self.statistics)
        return findings

    def num_steps(self, *, num_samples: int) -> int:
        """Return the optimizer steps of the run: `max_steps` or `epochs`, whichever ends first.

        Worked: max_steps is 30 and epochs is 0.5, for 95 samples in batches of 10. Half an epoch has 47 whole
        samples, which are 4 full batches. The run therefore has 4 steps.

        Args:
            num_samples: samples of the training split.
        """
        if not self.epochs:
            return self.max_steps
        by_epochs = max(1, int(self.epochs * num_samples) // self.global_batch_size)
        return min(self.max_steps or by_epochs, by_epochs)

    def rank_findings(self, ranks: int) -> list[str]:  # noqa: ARG002  # a script that cares overrides it
        """Return one sentence per value that is not valid for `ranks` ranks; `plan_batches` checks the batch sizes."""
        return []

    def decoder_config(self, *, vocab_size: int) -> GPTConfig:
        """Return the configuration of the decoder (model gpt)."""
        scaling = json.loads(self.rope_scaling) if self.rope_scaling else None
        return GPTConfig(
            vocab_size=vocab_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_size=self.hidden_size,
            sequence_length=self.sequence_length,
            dropout=self.dropout,
            num_kv_heads=self.num_kv_heads,
            feed_forward_size=self.feed_forward_size,
            norm_eps=self.norm_eps,
            rope_theta=self.rope_theta,
            rope_scaling=RopeScaling.of(scaling).to_dict() if scaling else None,
            tied_embeddings=self.tied_embeddings,
        )

    def init_findings(self, content: Any, *, file: str, vocab_size: int | None = None) -> list[str]:
        """Return the reasons why the decoder cannot begin with the weights of a model.

        Args:
            content: the content of the model's config.json.
            file: name of this file.
            vocab_size: tokens of the data set's vocabulary; None if unknown.
        """
        try:
            theirs = read_config(content, file=file)
        except DataError as error:
            return list(error.findings)
        ours = self.decoder_config(vocab_size=vocab_size or theirs.vocab_size)
        return shape_findings(ours, theirs, file=file)

    def _rope_findings(self) -> list[str]:
        try:
            if self.rope_scaling:
                RopeScaling.of(json.loads(self.rope_scaling))
        except ValueError as error:  # json's errors are ValueErrors, too
            return [f"rope_scaling is not valid: {error}"]
        return []

    def _trace_findings(self) -> list[str]:
        try:
            spans = read_spans(self.trace_steps)
        except HyperparameterError as error:
            return list(error.findings)
        first = self.max_steps - self.profile_steps + 1 if self.max_steps else 1
        if self.profile_steps and any(span[-1] >= first for span in spans):
            both = f"trace_steps {self.trace_steps} and profile_steps {self.profile_steps}"
            return [f"{both} need the profiler in the same steps: trace earlier steps"]
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return name -> value, ready for JSON."""
        return dataclasses.asdict(self)


def findings_of(check: Callable[..., object], *values: Any) -> list[str]:
    """Return the findings of the HyperparameterError that `check(*values)` raises, or an empty list."""
    try:
        check(*values)
    except HyperparameterError as error:
        return list(error.findings)
    return []


def _decode(sm_hps: str) -> dict[str, Any]:
    try:
        given = json.loads(sm_hps or "{}")
    except ValueError as error:
        raise HyperparameterError(
            f"SM_HPS is not JSON ({error}): got {sm_hps[:200]!r}; allowed: a JSON object of names and values"
        ) from error
    if not isinstance(given, dict):
        raise HyperparameterError(
            f"SM_HPS is not a JSON object: got {sm_hps[:200]!r}; allowed: a JSON object of names and values"
        )
    return given


def _options(
    kind: type[Hyperparameters], argv: Sequence[str], findings: list[str]
) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for item in dataclasses.fields(kind):
        parser.add_argument(f"--{item.name}", default=argparse.SUPPRESS, help=item.metadata["help"])
    # The toolkit passes each hyperparameter as an option, too; these are read from SM_HPS.
    for name in IGNORED_NAMES:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    known, unknown = parser.parse_known_args(list(argv))
    words = [word for word in unknown if word.startswith("--")] or unknown
    findings += [
        _unknown(kind, word.removeprefix("--").split("=")[0], where="option") for word in words
    ]
    return {name: value for name, value in vars(known).items() if name not in IGNORED_NAMES}


def _unknown(kind: type[Hyperparameters], name: str, *, where: str) -> str:
    names = [item.name for item in dataclasses.fields(kind)]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(names)}"
    return f"unknown {where} {name!r}: {hint}"


def _convert(value: Any, item: dataclasses.Field[Any]) -> Any:
    """Return `value` as the type of `item`.

    Raises:
        ValueError: the value has another type or is outside the limits; the text describes the allowed values.
    """
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    parsed = _parse(text.strip(), item)
    if parsed is _INVALID:
        raise ValueError(_allowed(item))
    return parsed


def _parse(text: str, item: dataclasses.Field[Any]) -> Any:
    kind, choices = str(item.type), item.metadata["choices"]
    if "None" in kind and text.lower() in NONE_WORDS:
        return None
    if kind.startswith("bool"):
        words = dict.fromkeys(TRUE_WORDS, True) | dict.fromkeys(FALSE_WORDS, False)
        return words.get(text.lower(), _INVALID)
    if kind.startswith("str"):
        return text if not choices or text in choices else _INVALID
    number = _number(text, whole=kind.startswith("int"))
    limits = item.metadata["limits"]
    is_allowed = limits.get("at_least", -math.inf) <= number <= limits.get(
        "at_most", math.inf
    ) and number > limits.get("above", -math.inf)
    return number if is_allowed else _INVALID


def _number(text: str, *, whole: bool) -> float:
    """Return the finite number in `text`, or NaN if `text` is not a finite number.

    With `whole`, the result is also NaN if the number is not a whole one.
    """
    try:
        number = float(text)
        if not whole:
            return number if math.isfinite(number) else math.nan
        # Parsed as int if possible: a seed may have 63 bits, more than a float is exact for.
        return int(text) if text.lstrip("+-").isdigit() else _whole(number)
    except ValueError:
        return math.nan


def _whole(number: float) -> float:
    return int(number) if number.is_integer() else math.nan


def _allowed(item: dataclasses.Field[Any]) -> str:
    kind = str(item.type)
    if item.metadata["choices"]:
        return "one of " + ", ".join(item.metadata["choices"])
    words = {"bool": "true or false", "int": "a whole number", "flo": "a number", "str": "a text"}
    text = next(word for prefix, word in words.items() if kind.startswith(prefix))
    names = {"at_least": "of at least", "at_most": "at most", "above": "above"}
    limits = [f"{names[key]} {limit:g}" for key, limit in item.metadata["limits"].items()]
    return " ".join([text, " and ".join(limits)]).strip() + (", or null" if "None" in kind else "")
