"""Gates around own functions: check, run, report.

A gated function runs only after the gateway allowed exactly its arguments as `custom:<name>`. Without an answer of the
gateway it does not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _operations as operations
from ._flow import Flow, to_json
from ._operations import CallIntent, GatePass
from .errors import ContentWithheldError, InvalidCallError, ReportError, SluiceError
from .ledger import FinishedRun, OperationLedger
from .settings import ClientSettings, OnApproval

# What is reported of a result at most; the gateway takes requests of 1 MiB.
_LONGEST_REPORT = 700_000


@dataclass(frozen=True, slots=True)
class GateRule:
    """How one function is gated."""

    capability: str
    operation: Callable[[Mapping[str, Any]], str] | None
    arguments: Callable[..., Mapping[str, Any]] | None
    exclude: frozenset[str]
    on_approval: OnApproval | None
    deadline: float | None
    report: bool | Callable[[Any], str]
    reason: str | None
    ledger: OperationLedger


class ArgumentReader:
    """Reads the arguments of a call as the gateway is shown them, by their names."""

    def __init__(self, function: Callable[..., Any], rule: GateRule) -> None:
        self._signature = inspect.signature(function)
        self._rule = rule
        first = next(iter(self._signature.parameters), None)
        # A method's own object is not an argument.
        self._left_out = rule.exclude | frozenset[str]([first] if first in ("self", "cls") else [])

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        if self._rule.arguments is not None:
            return self._rule.arguments(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if name in self._left_out:
                continue
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
        return named


@dataclass(slots=True)
class GateRun:
    """One run of a gated function, between permission and report."""

    rule: GateRule
    settings: ClientSettings
    arguments: Mapping[str, Any] = field(repr=False)
    operation: str | None = None
    passed: GatePass | None = None
    # SECURITY: a parked call that has finished is refused, not answered a second time.
    is_resumed: bool = False

    def enter(self) -> Flow[FinishedRun | None]:
        """Asks the gateway, and claims the operation if it has a key. Raises unless the function may run."""
        rule, settings = self.rule, self.settings
        operation = self.operation
        if operation is None and rule.operation is not None:
            operation = rule.operation(self.arguments)
        if operation is not None and not operation:
            raise InvalidCallError("the operation key is empty", code="client.operation", hint="name the operation")
        on_approval = rule.on_approval or settings.on_approval
        deadline = rule.deadline if rule.deadline is not None else settings.approval_deadline
        intent = CallIntent(rule.capability, self.arguments, "check", reason=rule.reason)
        self.passed = yield from operations.pass_gate(intent, settings, operation, on_approval, deadline)
        if operation is not None:
            self.operation = operation
            finished = yield from rule.ledger.claim(f"{rule.capability}\0{operation}", settings)
            if finished is not None:
                if self.is_resumed:
                    raise finished.refusal(operation)
                return finished
        # SECURITY: what runs is what was checked, also if somebody changed an object while a person decided.
        if to_json(self.arguments) != self.passed.body:
            raise InvalidCallError(
                "the arguments changed after they were checked, so the function is not run",
                code="client.arguments_changed",
                hint="do not change objects that are passed to a gated function",
                retry="after_change",
                call_id=self.passed.call_id,
            )
        return None

    def leave(self, result: Any) -> Flow[Any]:
        """Stores the end of the operation and reports the result. Gives what the caller may see."""
        rule = self.rule
        if self.operation is not None:
            yield from rule.ledger.finish(f"{rule.capability}\0{self.operation}", result, self.settings)
        return (yield from self.report(result))

    def report(self, result: Any) -> Flow[Any]:
        """Reports a result in its session, and gives it back unless it is withheld."""
        session, how = self.settings.session_id, self.rule.report
        if session is None or how is False or result is None:
            return result
        text = self._text(result)
        try:
            seen = yield from operations.observe(session, self.rule.capability, text, self.settings)
        except SluiceError as error:
            raise self._unreported(f"the result could not be reported [{error.code}]") from None
        if seen.verdict == "pass":
            return seen.text if isinstance(result, str) and how is True else result
        withheld = ContentWithheldError(
            "the function ran, and its result is withheld because it looks like an attack on agents",
            code="content.withheld",
            hint="go on without the result; your user can look at it and release it",
            retry="after_person",
            call_id=self.passed.call_id if self.passed else None,
            other=seen.finding_id,
        )
        withheld.finding_id = seen.finding_id
        raise withheld

    def _text(self, result: Any) -> str:
        how = self.rule.report
        if callable(how):
            text = how(result)
        elif isinstance(result, str):
            text = result
        else:
            try:
                text = to_json(result).decode()
            except SluiceError:
                raise self._unreported("the result has no JSON form") from None
        if len(text.encode(errors="replace")) > _LONGEST_REPORT:
            raise self._unreported("the result is too large to be reported")
        return text

    def _unreported(self, why: str) -> ReportError:
        return ReportError(
            f"the function ran, but {why}, so the result is not shown",
            code="client.report",
            hint="do not run it again; give the gate a `report` function, or report=False if no agent sees it",
            call_id=self.passed.call_id if self.passed else None,
        )


@dataclass(frozen=True, slots=True)
class GatedFunction:
    """What a gated function consists of."""

    rule: GateRule
    reader: ArgumentReader
    function: Callable[..., Any]


def mark_gated(wrapper: Any, gated: GatedFunction) -> Any:
    """Remembers on a wrapper what it wraps."""
    wrapper.__sluicegate__ = gated
    return wrapper


def gated_function(wrapper: object) -> GatedFunction:
    """What a wrapper wraps."""
    found = getattr(wrapper, "__sluicegate__", None)
    if not isinstance(found, GatedFunction):
        raise InvalidCallError("this function has no gate", code="client.gate", hint="decorate it with client.gate(…)")
    return found


def capability_of(name: str) -> str:
    """`custom:<name>` for a bare name."""
    return name if name.startswith("custom:") else f"custom:{name}"
