"""Errors of the gateway, as types.

Each error has the stable code of the gateway, its advice on retrying, and a hint for the agent. No error contains
arguments, results or credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ._codes import GatewayCode

RetryAdvice = Literal["never", "after_change", "after", "after_person", "safe_to_repeat"]


class SluiceError(Exception):
    """Any refusal or failure. `code`, `retry` and `hint` say what happened and what to do next."""

    def __init__(
        self,
        text: str,
        *,
        code: GatewayCode | str,
        hint: str = "",
        retry: RetryAdvice | str = "never",
        retry_after: float | None = None,
        status: int | None = None,
        call_id: str | None = None,
        rule: str | None = None,
        other: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.hint = hint
        self.retry = retry
        # Seconds after which a retry may pass, if that is known.
        self.retry_after = retry_after
        self.status = status
        self.call_id = call_id
        self.rule = rule
        # The existing object that the refusal refers to.
        self.other = other
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" + (f". {self.hint}" if self.hint else "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code!r}, retry={self.retry!r}, call_id={self.call_id!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # With keyword arguments alone an error could not be sent between processes.
        return (_restore, (type(self), self.text, self.__dict__.copy()))


def _restore(kind: type[SluiceError], text: str, members: dict[str, object]) -> SluiceError:
    error = kind.__new__(kind, text)
    Exception.__init__(error, text)
    error.__dict__.update(members)
    return error


class CredentialError(SluiceError):
    """The key is missing, unknown, revoked, expired or paused."""


class InvalidCallError(SluiceError):
    """The call does not have the form that the gateway or the capability expects. A corrected call may pass."""


class NotFoundError(SluiceError):
    """There is no such call, session, approval or capability for this key."""


class ConflictError(SluiceError):
    """The call contradicts an earlier one or the state of an object."""


class BlockedError(SluiceError):
    """A rule blocks the call. `rule` names it. This is a decision: do not look for another way."""


class DeniedError(SluiceError):
    """A person denied the call, or answered with nothing in time (`ExpiredError`)."""


class ExpiredError(DeniedError):
    """Nobody answered in time, which counts as a denial."""


class ApprovalRequiredError(SluiceError):
    """The call needs approval and `on_approval` is `deny`: it was withdrawn."""


class ParkedCallError(SluiceError):
    """The call waits for a person and `on_approval` is `park`. `parked` resumes it, also in another process."""

    def __init__(self, parked: str, call_id: str, approval_id: str | None) -> None:
        super().__init__(
            "the call waits for a person",
            code="client.parked",
            hint="resume it with the parked id after the decision; do not make the call again as a new one",
            retry="after_person",
            call_id=call_id,
        )
        self.parked = parked
        self.approval_id = approval_id


class LeakFoundError(SluiceError):
    """The call holds something that must not leave. The match itself is never part of the error."""


class ContentWithheldError(SluiceError):
    """The result looks like an attack on agents. The function ran; its result is withheld. `finding_id` names it."""

    finding_id: str | None = None


class FrozenError(SluiceError):
    """A person has frozen this agent, this service or everything."""


class RateLimitedError(SluiceError):
    """Too many calls, requests or approvals. `retry_after` says when to go on, if that is known."""


class OutcomeUnknownError(SluiceError):
    """It may have happened. Never repeat it; a person or the gateway finds out."""


class NotDoneError(SluiceError):
    """The write ended without an effect: cancelled, discarded, a dead letter, or refused by the service."""


class AlreadyFinishedError(SluiceError):
    """The operation has finished before. It is not carried out again; `result` is what it returned, if it is known."""

    result: object = None


class UnavailableError(SluiceError):
    """The gateway or a service cannot be reached or answers that it cannot work at present."""


class ResponseError(SluiceError):
    """The answer is not one of this API: broken JSON, a wrong shape, too large."""


class ReportError(SluiceError):
    """The function ran, but its result could not be reported, so it is not shown. Do not run it again."""


class WaitTimeoutError(SluiceError):
    """The time to wait is over. The call goes on; `call_id` reads its state."""


_BY_CODE: dict[str, type[SluiceError]] = {
    "policy.blocked": BlockedError,
    "egress.not_allowed": BlockedError,
    "egress.address": BlockedError,
    "approval.denied": DeniedError,
    "approval.expired": ExpiredError,
    "approval.lapsed": ExpiredError,
    "leak.found": LeakFoundError,
    "content.withheld": ContentWithheldError,
    "freeze.active": FrozenError,
    "worker.quarantined": FrozenError,
    "execute.in_doubt": OutcomeUnknownError,
    "execute.needs_human": OutcomeUnknownError,
    "egress.no_answer": OutcomeUnknownError,
    "egress.broken": OutcomeUnknownError,
    "store.unknown_outcome": OutcomeUnknownError,
    "execute.refused": NotDoneError,
    "execute.refused_mismatch": NotDoneError,
    "hold.cancelled": NotDoneError,
    "hold.discarded": NotDoneError,
    "hold.dead": NotDoneError,
    "hold.stale": NotDoneError,
    "approval.withdrawn": NotDoneError,
}
_BY_STATUS: dict[int, type[SluiceError]] = {
    400: InvalidCallError,
    401: CredentialError,
    403: BlockedError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: NotDoneError,
    413: InvalidCallError,
    415: InvalidCallError,
    422: InvalidCallError,
    423: FrozenError,
    429: RateLimitedError,
    431: InvalidCallError,
}


def error_type(code: str, status: int | None) -> type[SluiceError]:
    """The type of error for a code, or for a status if the code is not known."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.startswith("identity.") and status in (401, 403, None):
        return CredentialError
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return UnavailableError if status is not None and status >= 500 else SluiceError
