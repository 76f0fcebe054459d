"""Rules from a user's list: names, AWS's rule configurations, or Trainyard's own form.

    "LossSpike"
    {"rule": "LossSpike", "name": "spikes", "parameters": {"ratio": 2}, "severity": "error",
     "action": "stop"}
    {"RuleConfigurationName": "spikes", "RuleParameters": {"rule_to_invoke": "Overfit", "patience": "2"}}
    {"RuleConfigurationName": "hot", "RuleParameters": {"expression": "loss > 9", "persistence": "3"}}
    {"name": "too-hot", "expression": "gradient_norm > 5 * median(gradient_norm, 100)",
     "parameters": {"persistence": 3}}
    {"name": "odd", "file": "my_rules.py:odd_loss", "parameters": {"limit": 3}}

    "default"

`file` works with `python -m trainyard.rules --rules` only. `"default"` stands for each rule of the
catalogue that no other entry names. Parameters that an entry does not set have default values. For a rule
in an AWS configuration, these are AWS's documented defaults. For any other rule of the catalogue, they are
Trainyard's own defaults, called the robust profile, unless the entry has `"profile": "documented"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, FindingsError, Severity, SpecError, did_you_mean, near_matches
from trainyard.rules.catalogue import RULES
from trainyard.rules.custom_file import load_rule
from trainyard.rules.evaluation import ConfiguredRule
from trainyard.rules.expression import Expression
from trainyard.rules.rule import Rule, RuleAction, RuleProfile
from trainyard.specs.reading import read_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

DEFAULT = "default"
"""Placeholder for the rules of the catalogue that a list does not name."""
# Parameters of the service around a rule, not of the rule; they change nothing here.
_OF_THE_SERVICE = frozenset({"rule_to_invoke", "base_trial", "action_json", "scan_interval_us"})
_ADD_NAME = 'add a name to the entry, such as "name": "hot"'
_WRONG_KINDS = "an entry needs exactly one of the keys `rule`, `expression` and `file`"
_AWS_KEYS = frozenset(
    {
        "RuleConfigurationName",
        "RuleParameters",
        "RuleEvaluatorImage",
        "InstanceType",
        "VolumeSizeInGB",
        "LocalPath",
        "S3OutputPath",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """One entry of the user's list. Exactly one of `rule`, `expression` and `file` is set.

    Attributes:
        rule: name of a rule in the catalogue.
        expression: a condition.
        file: a rule in a Python file, `my_rules.py:name`.
        name: the name in verdicts; None uses the rule's name. An expression requires a name.
        severity: severity of issues; None uses the rule's.
        action: action that follows an issue; None uses the action of its severity.
    """

    rule: str | None = None
    expression: str | None = None
    file: str | None = None
    name: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity | None = None
    profile: RuleProfile = RuleProfile.ROBUST
    action: RuleAction | None = None

    def __post_init__(self) -> None:
        """Check that the entry defines exactly one rule.

        Raises:
            SpecError: it has none or several of `rule`, `expression` and `file`, or an expression has no name.
        """
        given = [key for key in ("rule", "expression", "file") if getattr(self, key) is not None]
        if len(given) != 1:
            got = ", ".join(f"`{key}`" for key in given) or "none"
            raise SpecError(Finding(where="rule", what=_WRONG_KINDS, got=got))
        if self.expression is not None and not self.name:
            raise SpecError(
                Finding(where="name", what="is required for an expression", next_step=_ADD_NAME)
            )


def configured_rules(
    wanted: Sequence[object] = (), *, where: str = "rules", folder: Path | None = None
) -> tuple[ConfiguredRule, ...]:
    """Return the requested rules. If none are requested, return the whole catalogue in the robust profile.

    Args:
        wanted: rules in the forms that the module's docstring lists.
        where: name of the list in findings.
        folder: folder of the rule files; None rejects entries with `file`.

    Raises:
        SpecError: unknown rules or parameters, invalid values, or repeated names; reports all of them at once.
    """
    if not wanted:
        return default_rules()
    findings: list[Finding] = []
    made: list[ConfiguredRule] = []
    for number, each in enumerate(wanted):
        if each == DEFAULT:
            continue
        try:
            made.append(_configured(each, where=f"{where}[{number}]", folder=folder))
        except FindingsError as error:
            findings += error.findings
    findings += _twice(made, where)
    if findings:
        raise SpecError(findings, subject=where)
    if DEFAULT in wanted:
        named = {each.rule.name for each in made}
        made += [each for each in default_rules() if each.name not in named]
    return tuple(made)


def rules_findings(wanted: Sequence[object]) -> tuple[Finding, ...]:
    """Return the faults of the requested rules; empty if there are none."""
    try:
        configured_rules(wanted)
    except SpecError as error:
        return error.findings
    return ()


def default_rules() -> tuple[ConfiguredRule, ...]:
    """Return all rules of the catalogue. Those that run only on request are marked as left out, with the reason."""
    rules = (make_rule(name, {}, profile=RuleProfile.ROBUST) for name in RULES)
    return tuple(
        ConfiguredRule(
            name=each.name,
            rule=each,
            severity=each.SEVERITY,
            left_out=each.ON_REQUEST and f"evaluated on request only: {each.ON_REQUEST}",
        )
        for each in rules
    )


def make_rule(
    name: str, parameters: Mapping[str, Any], *, profile: RuleProfile, where: str = ""
) -> Rule:
    """Return a rule of the catalogue, in which these parameters override those of the profile.

    Raises:
        SpecError: there is no such rule or parameter, or a value is invalid.
    """
    cls = RULES.get(name)
    if cls is None:
        near = near_matches(name, RULES)
        raise SpecError(
            Finding(
                where=where,
                what="is not a known rule",
                got=repr(name),
                allowed=None if near else ", ".join(RULES),
                next_step=did_you_mean(near),
            )
        )
    known = {each.name for each in fields(cls)}
    own = {
        key: value
        for key, value in parameters.items()
        if key in known or key not in _OF_THE_SERVICE
    }
    base = cls.ROBUST if profile is RuleProfile.ROBUST else {}
    return read_spec(cls, {**base, **own}, where=where)


def _configured(value: object, *, where: str, folder: Path | None) -> ConfiguredRule:
    spec = _spec(value, where=where)
    if spec.file is not None:
        rule = _rule_of_file(spec.file, spec.parameters, folder=folder, where=where)
    elif spec.expression is not None:
        rule = read_spec(
            Expression, {**spec.parameters, "expression": spec.expression}, where=where
        )
    else:
        parameters = spec.parameters
        rule = make_rule(str(spec.rule), parameters, profile=spec.profile, where=where)
    if findings := list(_too_small(rule, where=where)):
        raise SpecError(findings)
    return ConfiguredRule(
        name=spec.name or rule.name,
        rule=rule,
        severity=spec.severity or rule.SEVERITY,
        action=spec.action,
    )


def _too_small(rule: Rule, *, where: str) -> Iterator[Finding]:
    for name, least in (("warm_up", 0), ("persistence", 1)):
        if (value := getattr(rule, name)) < least:
            yield Finding(
                where=f"{where}.{name}",
                what="is too small",
                got=str(value),
                allowed=f"at least {least}",
            )


def _rule_of_file(
    place: str, parameters: Mapping[str, Any], *, folder: Path | None, where: str
) -> Rule:
    if folder is None:
        next_step = "write an expression, or evaluate the finished run by `python -m trainyard.rules --rules`"
        what = "is not allowed in a run's conf, because a rule file is code"
        raise SpecError(
            Finding(where=f"{where}.file", what=what, got=repr(place), next_step=next_step)
        )
    return load_rule(place, parameters, folder=folder, where=where)


def _spec(value: object, *, where: str) -> RuleSpec:
    if isinstance(value, str):
        return RuleSpec(rule=value)
    if isinstance(value, Mapping) and set(value) & _AWS_KEYS:
        return _aws_spec(value, where=where)
    return read_spec(RuleSpec, value, where=where)  # type: ignore[arg-type]  # read_spec reports any other type


def _aws_spec(value: Mapping[str, Any], *, where: str) -> RuleSpec:
    parameters = value.get("RuleParameters")
    if isinstance(parameters, Mapping) and parameters.get("expression"):
        own = {
            key: each
            for key, each in parameters.items()
            if key != "expression" and key not in _OF_THE_SERVICE
        }
        return RuleSpec(
            expression=str(parameters["expression"]),
            name=value.get("RuleConfigurationName"),
            parameters=own,
            action=_aws_action(parameters),
        )
    if not isinstance(parameters, Mapping) or not parameters.get("rule_to_invoke"):
        raise SpecError(
            Finding(
                where=f"{where}.RuleParameters",
                what="has neither rule_to_invoke nor expression",
                got=repr(parameters),
                allowed="rule_to_invoke (the name of a rule) or expression",
                next_step='add one, for example {"rule_to_invoke": "VanishingGradient", '
                '"threshold": "1e-7"} or {"expression": "loss > 10"}',
            )
        )
    return RuleSpec(
        rule=str(parameters["rule_to_invoke"]),
        name=value.get("RuleConfigurationName"),
        parameters=parameters,
        profile=RuleProfile.DOCUMENTED,
        action=_aws_action(parameters),
    )


def _aws_action(parameters: Mapping[str, Any]) -> RuleAction | None:
    """Return the action of an `action_json`: `STOP` for a `stoptraining` action, otherwise None."""
    return RuleAction.STOP if "stoptraining" in str(parameters.get("action_json")) else None


def _twice(made: Iterable[ConfiguredRule], where: str) -> list[Finding]:
    names = [each.name for each in made]
    return [
        Finding(
            where=where,
            what="two rules have the same name",
            got=name,
            next_step="set `name` of one of them",
        )
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
