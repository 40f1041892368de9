"""What the clients do, as flows: calls, waiting, approvals, sessions, gates.

Promise: the decision is always the gateway's. Nothing here allows a call that the gateway did not allow.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._flow import (
    Flow,
    PauseFor,
    SendRequest,
    call_error,
    decode,
    exchange,
    new_key,
    request_json,
)
from .errors import (
    ApprovalRequiredError,
    ConflictError,
    DeniedError,
    InvalidCallError,
    NotDoneError,
    ParkedCallError,
    WaitTimeoutError,
)
from .settings import ClientSettings, OnApproval

if TYPE_CHECKING:
    from . import _schema as schema
else:
    from . import _lazy_schema as schema

# The gateway waits at most a minute for one request.
_LONGEST_WAIT = 30.0
_OPEN = frozenset({"held", "awaiting_approval", "executing", "retrying", "in_doubt"})
GOOD = frozenset({"done", "allowed"})


@dataclass(frozen=True, slots=True)
class CallIntent:
    """A call that is to be made, with the key under which it is one call however often it is sent."""

    capability: str
    arguments: Mapping[str, Any] = field(repr=False)
    mode: schema.CallMode = "execute"
    key: str | None = None
    session_id: str | None = None
    reason: str | None = None
    account: str | None = None
    allow_duplicate: bool = False
    wait: float | None = None


def is_open(status: str) -> bool:
    """Whether a call can still change by itself or by a decision."""
    return status in _OPEN


def make_call(intent: CallIntent, settings: ClientSettings) -> Flow[schema.CallView]:
    """Makes a call. Gives its state, or raises what refused it."""
    key = intent.key or new_key()
    body: dict[str, Any] = {"capability": intent.capability, "arguments": intent.arguments, "idempotency_key": key}
    session = intent.session_id or settings.session_id
    stated = (("session_id", session), ("reason", intent.reason), ("account", intent.account))
    body.update((name, value) for name, value in stated if value is not None)
    if intent.mode != "execute":
        body["mode"] = intent.mode
    if intent.allow_duplicate:
        body["allow_duplicate"] = True
    if intent.wait is not None:
        body["wait_ms"] = max(0, int(min(intent.wait, _LONGEST_WAIT) * 1000))
    request = request_json("POST", "/v1/calls", body)
    # A write without a delay is waited for up to five seconds by the gateway itself.
    request.patience = max(5.0, intent.wait or 0.0)
    answer = yield from exchange(request, settings.retries)
    view = decode(answer.body, schema.CallView)
    if view.status not in GOOD and not is_open(view.status):
        raise call_error(view)
    return view


def read_call(call_id: str, settings: ClientSettings, wait: float = 0.0) -> Flow[schema.CallView]:
    """The state of a call, after waiting for a change."""
    request = SendRequest("GET", f"/v1/calls/{path_part(call_id)}", patience=wait)
    if wait > 0:
        request.params = {"wait_ms": str(int(wait * 1000))}
    answer = yield from exchange(request, settings.retries)
    return decode(answer.body, schema.CallView)


def wait_for_call(
    view: schema.CallView, settings: ClientSettings, timeout: float | None, *, only_decision: bool = False
) -> Flow[schema.CallView]:
    """Waits for the end of a call, or only for the decision of people. Raises unless it ended well."""
    ends = None if timeout is None else time.monotonic() + timeout
    quick = 0
    while is_open(view.status) and not (only_decision and view.status != "awaiting_approval"):
        left = _LONGEST_WAIT if ends is None else min(_LONGEST_WAIT, ends - time.monotonic())
        if left <= 0:
            raise WaitTimeoutError(
                f"the call is still {view.status}",
                code="client.wait_timeout",
                hint="the call goes on; read or cancel it by its id",
                retry="after_person" if view.status == "awaiting_approval" else "after",
                call_id=view.call_id,
            )
        begun = time.monotonic()
        after = yield from read_call(view.call_id, settings, left)
        # A gateway that answers at once without a change must not be asked without a pause.
        quick = quick + 1 if after.status == view.status and time.monotonic() - begun < 0.05 else 0
        if quick:
            yield PauseFor(min(0.05 * quick, 1.0, max(left, 0.0)))
        view = after
    if view.status in GOOD or (only_decision and is_open(view.status)):
        return view
    raise call_error(view)


def cancel_call(call_id: str, settings: ClientSettings) -> Flow[schema.HoldView]:
    """Cancels a write that has not left."""
    answer = yield from exchange(SendRequest("POST", f"/v1/calls/{path_part(call_id)}/cancel"), settings.retries)
    return decode(answer.body, schema.HoldView)


def settle_approval(
    view: schema.CallView, settings: ClientSettings, on_approval: OnApproval, deadline: float | None, parked: str
) -> Flow[schema.CallView]:
    """What happens to a call that needs a person: it waits, is parked, or is withdrawn."""
    if view.status != "awaiting_approval":
        return view
    if on_approval == "wait":
        return (yield from wait_for_call(view, settings, deadline, only_decision=True))
    if on_approval == "park":
        raise ParkedCallError(parked, view.call_id, view.approval_id)
    try:
        yield from cancel_call(view.call_id, settings)
    except ConflictError:
        # A person was faster. The call is not used in either case; a denial is told as such.
        after = yield from read_call(view.call_id, settings)
        if after.status not in GOOD and not is_open(after.status):
            raise call_error(after) from None
    raise ApprovalRequiredError(
        "the call needs approval, which this client does not wait for; it was withdrawn",
        code="client.approval_required",
        hint="tell your user; or set on_approval to `wait` or `park`",
        retry="after_person",
        call_id=view.call_id,
    )


def path_part(text: str) -> str:
    """An id as a part of a path. An id has letters, digits and `_` only: nothing else is sent."""
    if not text or not text.isascii() or not text.replace("_", "").replace("-", "").isalnum():
        raise InvalidCallError(
            "this is not an id", code="client.bad_id", hint="use ids exactly as the gateway gave them"
        )
    return text


# Gates


@dataclass(frozen=True, slots=True)
class GatePass:
    """The gateway's permission for one run of a function."""

    call_id: str
    capability: str
    operation: str | None
    body: bytes = field(repr=False)


def operation_key(capability: str, operation: str) -> str:
    """The idempotency key of an operation of a gated function."""
    return "gate-" + hashlib.sha256(f"{capability}\0{operation}".encode()).hexdigest()[:48]


def pass_gate(
    intent: CallIntent,
    settings: ClientSettings,
    operation: str | None,
    on_approval: OnApproval,
    deadline: float | None,
) -> Flow[GatePass]:
    """Asks whether a function may run. Gives a pass only if the gateway allowed exactly these arguments."""
    from ._flow import to_json

    body = to_json(intent.arguments)
    name = operation or f"once-{new_key()}"
    key = operation_key(intent.capability, name)
    asked = CallIntent(
        intent.capability, intent.arguments, "check", key, intent.session_id, intent.reason, intent.account
    )
    view = yield from make_call(asked, settings)
    view = yield from settle_approval(view, settings, on_approval, deadline, name)
    if view.status != "allowed":
        # `held`, `executing`: approved, and a moment before it reads `allowed`.
        view = yield from wait_for_call(view, settings, 30.0)
    if view.status != "allowed":
        raise DeniedError(f"the call is {view.status}, not allowed", code=f"call.{view.status}", call_id=view.call_id)
    return GatePass(view.call_id, intent.capability, operation, body)


def withdraw(call_id: str, settings: ClientSettings) -> Flow[None]:
    """Cancels a call that nobody will use; it does not matter if it has ended."""
    try:
        yield from cancel_call(call_id, settings)
    except (ConflictError, NotDoneError):
        return


# Approvals of a client that executes itself


def request_approval(body: schema.GateRequestBody, key: str, settings: ClientSettings) -> Flow[schema.GateReceiptView]:
    answer = yield from exchange(request_json("POST", "/v1/approvals", body, key=key), settings.retries)
    return decode(answer.body, schema.GateReceiptView)


def read_approval(approval_id: str, settings: ClientSettings, wait: float = 0.0) -> Flow[schema.GateRequestView]:
    request = SendRequest("GET", f"/v1/approvals/{path_part(approval_id)}", patience=wait)
    if wait > 0:
        request.params = {"wait_ms": str(int(wait * 1000))}
    answer = yield from exchange(request, settings.retries)
    return decode(answer.body, schema.GateRequestView)


def wait_for_approval(
    approval_id: str, settings: ClientSettings, timeout: float | None
) -> Flow[schema.GateRequestView]:
    """Waits until people decided. Gives the decision also if it is a denial."""
    ends = None if timeout is None else time.monotonic() + timeout
    quick = 0
    while True:
        left = _LONGEST_WAIT if ends is None else min(_LONGEST_WAIT, ends - time.monotonic())
        begun = time.monotonic()
        view = yield from read_approval(approval_id, settings, max(left, 0.0))
        if view.status != "pending":
            return view
        if ends is not None and time.monotonic() >= ends:
            raise WaitTimeoutError(
                "the approval request is still open",
                code="client.wait_timeout",
                hint="read it by its id, or ask again for the same",
                retry="after_person",
                other=approval_id,
            )
        quick = quick + 1 if time.monotonic() - begun < 0.05 else 0
        if quick:
            yield PauseFor(min(0.05 * quick, 1.0))


# Sessions


def open_session(client: str | None, task: str | None, settings: ClientSettings) -> Flow[schema.SessionView]:
    """Opens a session. With a task it needs a task key: an agent cannot state what its user asked for."""
    body: dict[str, Any] = {}
    if client is not None:
        body["client"] = client
    if task is not None:
        body["task"] = task
    # A second session would be harmless but is never wanted: it is not repeated once it may have arrived.
    request = request_json("POST", "/v1/sessions", body, repeatable=False, with_task_key=task is not None)
    answer = yield from exchange(request, settings.retries)
    return decode(answer.body, schema.SessionView)


def state_task(session_id: str, task: str, settings: ClientSettings) -> Flow[None]:
    path = f"/v1/sessions/{path_part(session_id)}/task"
    yield from exchange(request_json("POST", path, {"task": task}, with_task_key=True), settings.retries)


def observe(session_id: str, capability: str, text: str, settings: ClientSettings) -> Flow[schema.ObservationView]:
    """Reports outside text before an agent sees it."""
    path = f"/v1/sessions/{path_part(session_id)}/observations"
    request = request_json("POST", path, {"capability": capability, "text": text})
    # Screening takes a worker.
    request.patience = 20.0
    answer = yield from exchange(request, settings.retries)
    return decode(answer.body, schema.ObservationView)


def end_session(session_id: str, settings: ClientSettings) -> Flow[None]:
    yield from exchange(SendRequest("DELETE", f"/v1/sessions/{path_part(session_id)}"), settings.retries)


def list_capabilities(settings: ClientSettings) -> Flow[list[dict[str, Any]]]:
    answer = yield from exchange(SendRequest("GET", "/v1/capabilities"), settings.retries)
    page = decode(answer.body, dict)  # pyright: ignore[reportUnknownVariableType]
    return list(page.get("data", []))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]


def whoami(settings: ClientSettings) -> Flow[dict[str, Any]]:
    answer = yield from exchange(SendRequest("GET", "/v1/whoami"), settings.retries)
    return decode(answer.body, dict)  # pyright: ignore[reportUnknownVariableType]
