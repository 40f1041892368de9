"""Types of the API. Written by `sdk/generate.py` from `docs/openapi.json`: do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import msgspec


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document (RFC 9457): why a request was refused."""

    # The stable code; see docs/errors.md.
    code: str
    # What happened in this case.
    detail: str
    # What to do instead.
    hint: str
    # Whether and when to retry.
    retry: str
    # The HTTP status.
    status: int
    # The kind of problem, as text.
    title: str
    # The URN of the kind of problem.
    type: str
    # The id of the call it belongs to.
    call_id: str | None = None
    # An existing object that the refusal refers to.
    other: str | None = None
    # The id of the request, for support.
    request_id: str | None = None
    # When to retry, if that is known.
    retry_after_ms: int | None = None
    # The rule that refused.
    rule: str | None = None


class RetryView(msgspec.Struct, frozen=True, kw_only=True):
    """The next attempt of a write."""

    # The number of the next retry, from 1 on.
    attempt: int
    # When the retry is made, unless a person requests it earlier.
    next_at: str
    # How many retries there are before the write becomes a dead letter.
    of: int


class LastErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed."""

    # When the attempt failed.
    at: str
    # The reason, as a stable code.
    code: str
    # The reason, as our text.
    text: str
    # What the service said, screened and cut to length. Agents see it only for mounted servers, whose words pass the
    # content stages; otherwise it is shown to people only.
    service_says: str | None = None


class ReadTraceView(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit log holds of a read: ids and hashes, never content."""

    # How many objects the answer held.
    count: int
    # The ids of the first objects: messages, files, keys.
    ids: list[str]
    # How many more ids there were.
    more: int
    # The keyed hash of the answer.
    result_hash: str
    # How old the replica was, in seconds, if the answer came from one.
    age_s: int | None = None
    # The keyed hash of the search text, if it was a search. The same text has the same hash.
    query_hash: str | None = None


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a call."""

    # The id of the call.
    call_id: str
    # `done`, `allowed`, `held`, `awaiting_approval`, `executing`, `retrying`, `blocked`, `in_doubt`, `needs_human`,
    # `stale`, `cancelled`, `denied`, `expired`, `dead`, `discarded` or `refused`.
    status: str
    # The id of the approval that a person decides.
    approval_id: str | None = None
    # Whether batch protection asked, rather than a rule.
    batch: bool | None = None
    # The id of the held write.
    buffer_id: str | None = None
    # When the undo window closes.
    cancel_deadline: str | None = None
    # The capability of the call.
    capability: str | None = None
    # Why it is blocked or over, as a stable code.
    code: str | None = None
    # What the call would use and what is left of the day, for a check of a security proxy's call.
    estimate: Any = None
    # When no answer becomes a denial.
    expires_at: str | None = None
    # The freeze in force, if a read was answered in spite of it: everything else is refused meanwhile.
    frozen: str | None = None
    # What to do instead.
    hint: str | None = None
    # Why the last attempt failed, while the write has not happened.
    last_error: LastErrorView | None = None
    # What the audit log holds of a read. Shown to operators only.
    read: ReadTraceView | None = None
    # Why it is blocked or over, as text.
    reason: str | None = None
    # The result, once the call is done.
    result: Any = None
    # The next attempt, while the write is `retrying`.
    retry: RetryView | None = None
    # The rule that decided.
    rule: str | None = None


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """A held write."""

    # When it was admitted.
    admitted_at: str
    # The agent that made it.
    agent: str
    # How many attempts were made.
    attempts: int
    # The id of the write.
    buffer_id: str
    # The id of the call that made it.
    call_id: str
    # The capability of the write.
    capability: str
    # The SHA-256 digest of the exact action.
    digest: str
    # The service of the write.
    service: str
    # The exact state.
    state: str
    # The state, in the words of calls.
    status: str
    # The tier of the policy verdict.
    tier: str
    # The version: it counts changes of state.
    version: int
    # How many ordinary writes it counts as.
    weight: int
    # What is known here of the objects it names by id, one line each, in third-party words.
    about: list[str] | None = None
    # The account at the service, if the write names one.
    account: str | None = None
    # The id of its approval, open or decided.
    approval_id: str | None = None
    # The arguments, for those who may see them.
    arguments: Any = None
    # When its undo window closes.
    cancel_deadline: str | None = None
    # The reason for its state.
    code: str | None = None
    # Why the last attempt failed, while the write has not happened.
    last_error: LastErrorView | None = None
    # The agent's reason, in its own words: nobody has checked it.
    reason: str | None = None
    # The service's receipt.
    receipt: str | None = None
    # The next attempt, while the write is `retrying`.
    retry: RetryView | None = None
    # The write that it undoes.
    reverses: str | None = None
    # The session in which it was made.
    session_id: str | None = None
    # The options that a spawn adds: the shorter time, the schema of the answer.
    spawn: Any = None
    # The targets that it reaches, and where each was first seen.
    targets: list[TargetView] | None = None


class TargetView(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a write."""

    # The argument that holds it.
    argument: str
    # `asked` for by the user, `known`, `seen` in outside text, or `new`.
    origin: str
    # The value in the write.
    value: str
    # The outside text in which it was seen.
    source: str | None = None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    # The agent of the session.
    agent: str
    # Whether the user's task is known.
    has_task: bool
    # When it was opened.
    opened_at: str
    # The id of the session.
    session_id: str
    # Whether it was shown content that looked like an attack.
    tainted: bool
    # The name of the client program.
    client: str | None = None
    # When it ended.
    ended_at: str | None = None


class ObservationView(msgspec.Struct, frozen=True, kw_only=True):
    """What the client may show."""

    # The text to show instead of the reported one.
    text: str
    # `pass`, `withheld` or `refused`.
    verdict: str
    # The finding, if it is withheld.
    finding_id: str | None = None


class GateDecisionView(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a person."""

    # The number of the menu line.
    code: str
    # The person's note; the letter of an option.
    note: str | None
    # The text that the person wants instead.
    override: str | None


class GateReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a request right after it was made."""

    # The id of the approval.
    approval_id: str
    # Whether a standing approval answered.
    auto: bool
    # The decision.
    decision: GateDecisionView | None
    # When no answer becomes a denial, in seconds since 1970.
    expires_at: int | None
    # `pending`, `approved`, `denied` or `expired`.
    status: str
    # The allow rule that answered.
    rule_id: str | None = None


class GateRequestView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a request."""

    # The kind of action, once decided.
    action_type: str | None
    # The id of the approval.
    approval_id: str
    # The decision.
    decision: GateDecisionView | None
    # When no answer becomes a denial, in seconds since 1970.
    expires_at: int | None
    # The client's name for its session, once decided.
    session_id: str | None
    # `pending`, `approved`, `denied` or `expired`.
    status: str
    # The chosen option, as text.
    answer: str | None = None
    # The freeze that holds an approval back: the request stays `pending` until the freeze is lifted.
    frozen: str | None = None
    # The title of the request, in lists.
    title: str | None = None


# Who carries out a call.
CallMode = Literal["execute"] | Literal["check"]


class CallOptionsRequired(TypedDict):
    """A call as the agent states it."""

    # The capability: `email.send`, or `custom:<tool>` with `mode: check`.
    capability: str


class CallOptions(CallOptionsRequired, total=False):
    """A call as the agent states it."""

    # The account of the service.
    account: str | None
    # Allows a second identical call shortly after the first.
    allow_duplicate: bool
    # The arguments of the capability.
    arguments: dict[str, Any]
    # The idempotency key: a repeated call with the same key is the same call, for 30 days.
    idempotency_key: str | None
    # Whether the gateway carries out the call, or only says whether the caller may.
    mode: CallMode
    # The reason in the agent's words. Shown to people as such.
    reason: str | None
    # The session, as issued by the gateway.
    session_id: str | None
    # How long to wait for the outcome, in milliseconds.
    wait_ms: int | None


class NewSessionBodyRequired(TypedDict):
    """A new session."""



class NewSessionBody(NewSessionBodyRequired, total=False):
    """A new session."""

    # The agent of the session. Only an operator names one; a key is bound to its own agent.
    agent: str | None
    # The name of the client program.
    client: str | None
    # What the user asked for. Only with a task key or an operator token.
    task: str | None


class SessionPromptBodyRequired(TypedDict):
    """A prompt of the user in an open session."""

    # The user's own words.
    task: str


class SessionPromptBody(SessionPromptBodyRequired, total=False):
    """A prompt of the user in an open session."""



class ObservationBodyRequired(TypedDict):
    """Content that a self-executing client is about to show its agent."""

    # The tool that the content came from: `custom:<tool>`.
    capability: str
    # The text of the content.
    text: str


class ObservationBody(ObservationBodyRequired, total=False):
    """Content that a self-executing client is about to show its agent."""



class GateTargetRequired(TypedDict):
    """A chat or an address."""



class GateTarget(GateTargetRequired, total=False):
    """A chat or an address."""

    # An e-mail address.
    email_to: str | None
    # The number of a chat.
    tg_chat_id: str | None


class GateRequestBodyRequired(TypedDict):
    """An action that a client wants to carry out itself. Other members are ignored, as existing clients expect."""

    # The kind of action: `exec_cmd`, `http_request`, `write_file`, `send_message`, `custom:<tool>`.
    action_type: str
    # The details of the action.
    preview: str
    # The client's name for its run or session.
    session_id: str
    # A short title.
    title: str


class GateRequestBody(GateRequestBodyRequired, total=False):
    """An action that a client wants to carry out itself. Other members are ignored, as existing clients expect."""

    # `telegram` or `email`; by default all configured people are asked.
    channel: str | None
    # Seconds after which no answer becomes a denial.
    expires_in_sec: int | None
    # The possible answers, for a request with options.
    options: list[str] | None
    # The chat or address to ask; the operator must allow it.
    target: GateTarget | None
