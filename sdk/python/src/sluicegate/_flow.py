"""The path of a request, without input and output: what is sent, when it is repeated, what an answer means.

A flow is a generator. It yields requests and pauses; a driver carries them out, synchronously or not, and sends the
outcome back in. So both clients behave alike. Promise: a request is repeated only if that cannot act twice.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import InvalidCallError, ResponseError, SluiceError, UnavailableError, error_type

if TYPE_CHECKING:
    from . import _schema as schema
else:
    from . import _lazy_schema as schema

ResultT = TypeVar("ResultT")
ViewT = TypeVar("ViewT")


@dataclass(slots=True)
class SendRequest:
    """A request to send. `repeatable` says that sending it twice is the same as sending it once."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: bytes | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True
    # How long the gateway may take on purpose, in seconds.
    patience: float = 0.0
    with_task_key: bool = False


@dataclass(slots=True)
class PauseFor:
    """A pause, in seconds."""

    seconds: float


@dataclass(slots=True)
class HttpAnswer:
    """An answer of the gateway."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    retry_after: float | None = None


@dataclass(slots=True)
class TransportFailure:
    """No answer. `sent` says that the request may have reached the gateway."""

    kind: str
    sent: bool


FlowStep = SendRequest | PauseFor
Flow = Generator[FlowStep, "HttpAnswer | TransportFailure | None", ResultT]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long, a client tries again. Only requests that cannot act twice are repeated."""

    attempts: int = 4
    first_pause: float = 0.2
    # The longest advised pause that the client takes by itself; a longer one is left to the caller.
    longest_pause: float = 15.0

    def backoff(self, attempt: int) -> float:
        return min(self.first_pause * 2**attempt, self.longest_pause) * random.uniform(0.5, 1.0)  # noqa: S311


def new_key() -> str:
    """An idempotency key for one call."""
    return f"sdk-{secrets.token_hex(16)}"


def to_json(value: object) -> bytes:
    """JSON text; refuses what has no exact JSON form. The error names the type, never the value."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = str(error) if isinstance(error, TypeError) else type(error).__name__
        text = f"the arguments have no JSON form: {kind}"
        # Without the cause: its message or frames could hold a part of the arguments.
        raise InvalidCallError(
            text,
            code="client.not_json",
            hint="pass text, numbers, booleans, lists and objects with text keys; NaN and infinity have no JSON form",
            retry="after_change",
        ) from None


def decode(body: bytes, kind: type[ViewT]) -> ViewT:
    """The view that a body holds."""
    import msgspec

    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken_answer(f"the answer is not a {kind.__name__}") from None


def broken_answer(text: str) -> ResponseError:
    return ResponseError(
        text,
        code="client.bad_answer",
        hint="check that the address is that of a Sluicegate gateway; a repeated call with the same key is safe",
        retry="safe_to_repeat",
    )


def problem(answer: HttpAnswer) -> SluiceError:
    """The error that an answer states."""
    if answer.content_type.startswith("application/json"):
        view = decode(answer.body, schema.CallView)
        return call_error(view, answer.status)
    if not answer.content_type.startswith("application/problem+json"):
        kind = UnavailableError if answer.status >= 500 else ResponseError
        return kind(
            f"the answer with status {answer.status} is not one of a gateway",
            code="client.bad_answer",
            hint="check the address, and what stands between client and gateway",
            retry="safe_to_repeat" if answer.status >= 500 else "after_change",
            retry_after=answer.retry_after,
            status=answer.status,
        )
    told = decode(answer.body, schema.ProblemDetails)
    wait = told.retry_after_ms / 1000 if told.retry_after_ms is not None else answer.retry_after
    return error_type(told.code, told.status)(
        told.detail,
        code=told.code,
        hint=told.hint,
        retry=told.retry,
        retry_after=wait,
        status=told.status,
        call_id=told.call_id,
        rule=told.rule,
        other=told.other,
        request_id=told.request_id,
    )


# How the codes of ended calls advise, where the view of a call has no advice of its own.
_ADVICE = {
    "policy.blocked": "never",
    "approval.denied": "never",
    "hold.cancelled": "never",
    "execute.in_doubt": "never",
}


def call_error(view: schema.CallView, status: int | None = None) -> SluiceError:
    """The error of a call that ended without its effect."""
    code = view.code or f"call.{view.status}"
    kind = error_type(code, status)
    if view.status in ("in_doubt", "needs_human"):
        kind = error_type("execute.needs_human", None)
    elif kind is SluiceError:
        kind = error_type("hold.dead", None)
    return kind(
        view.reason or f"the call is {view.status}",
        code=code,
        hint=view.hint or "",
        retry=_ADVICE.get(code, "after_person"),
        status=status,
        call_id=view.call_id,
        rule=view.rule,
    )


def exchange(request: SendRequest, policy: RetryPolicy) -> Flow[HttpAnswer]:
    """Sends a request, again where that is safe. Gives an answer below 400, or raises."""
    attempt = 0
    while True:
        outcome = yield request
        assert outcome is not None  # noqa: S101
        attempt += 1
        if isinstance(outcome, TransportFailure):
            error: SluiceError = unreachable(outcome)
            may_repeat = request.repeatable or not outcome.sent
            pause = policy.backoff(attempt - 1)
        elif outcome.status < 400:
            return outcome
        else:
            error = problem(outcome)
            may_repeat = request.repeatable and error.retry in ("after", "safe_to_repeat")
            pause = policy.backoff(attempt - 1)
            if error.retry_after is not None:
                pause = max(error.retry_after, pause)
            elif error.retry == "after":
                may_repeat = False
        if not may_repeat or attempt >= policy.attempts or pause > policy.longest_pause:
            raise error
        yield PauseFor(pause)


def unreachable(failure: TransportFailure) -> UnavailableError:
    text = "the gateway did not answer" if failure.sent else "the gateway cannot be reached"
    hint = "nothing was done unless the gateway received the call; repeat it with the same idempotency key"
    if not failure.sent:
        hint = "nothing was sent; check that the gateway runs and that SLUICE_URL names it"
    return UnavailableError(f"{text} ({failure.kind})", code="client.unreachable", hint=hint, retry="safe_to_repeat")


def request_json(
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    repeatable: bool = True,
    with_task_key: bool = False,
) -> SendRequest:
    """A request with a JSON body."""
    headers: dict[str, str] = {}
    if key is not None:
        headers["idempotency-key"] = key
    return SendRequest(
        method,
        path,
        body=None if body is None else to_json(body),
        headers=headers,
        repeatable=repeatable,
        with_task_key=with_task_key,
    )
