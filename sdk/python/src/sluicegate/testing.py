"""An offline gateway for tests of agents: scripted decisions, in memory, over the same HTTP shapes.

    fake = FakeGateway()
    fake.ask("custom:refund")
    client = fake.client()
    …
    fake.approve()

A capability that was not scripted is blocked. Promise: its answers have the form of the real ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .aio import AsyncSluiceClient
from .client import SluiceClient

if TYPE_CHECKING:
    import httpx

_ENDED = {
    "blocked": ("policy.blocked", "a rule blocks this call", 403, "never"),
    "denied": ("approval.denied", "a person denied the call", 403, "never"),
    "expired": ("approval.expired", "nobody answered in time, which counts as a denial", 403, "after_person"),
    "cancelled": ("hold.cancelled", "the write was cancelled before it left; nothing was sent", 409, "never"),
}


@dataclass(slots=True)
class FakeCall:
    """A call that the fake gateway got."""

    call_id: str
    capability: str
    arguments: dict[str, Any]
    mode: str
    session_id: str | None
    key: str | None
    status: str
    result: Any = None
    note: str | None = None

    def view(self) -> dict[str, Any]:
        view: dict[str, Any] = {"call_id": self.call_id, "status": self.status, "capability": self.capability}
        if self.status == "awaiting_approval":
            view |= {"approval_id": self.call_id.replace("call_", "appr_"), "buffer_id": self.buffer_id}
        if self.status == "held":
            view |= {"buffer_id": self.buffer_id, "cancel_deadline": "2030-01-01T00:00:00.000Z"}
        if self.status == "done":
            view["result"] = self.result
        if self.status in _ENDED:
            code, text, _, _ = _ENDED[self.status]
            view |= {"code": code, "reason": f"{text}, and wrote: {self.note}" if self.note else text, "hint": "test"}
        return view

    @property
    def buffer_id(self) -> str:
        return self.call_id.replace("call_", "buf_")


@dataclass(slots=True)
class _Script:
    status: str
    result: Any = None


@dataclass(slots=True)
class _Session:
    session_id: str
    client: str | None
    ended: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class FakeGateway:
    """A gateway in memory. `calls` are the calls that it got, the oldest first."""

    def __init__(self) -> None:
        self.calls: list[FakeCall] = []
        self.sessions: dict[str, _Session] = {}
        self._scripts: list[tuple[str, _Script]] = []
        self._state: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._faults: list[Callable[[httpx.Request], httpx.Response]] = []

    def allow(self, capability: str, result: Any = None) -> FakeGateway:
        """Calls are done at once, with a result; checks are allowed. `*` at the end stands for the rest of a name."""
        return self._script(capability, "done", result)

    def hold(self, capability: str, result: Any = None) -> FakeGateway:
        """Calls are held until `release`."""
        return self._script(capability, "held", result)

    def ask(self, capability: str, result: Any = None) -> FakeGateway:
        """Calls wait for `approve` or `deny`."""
        return self._script(capability, "awaiting_approval", result)

    def block(self, capability: str) -> FakeGateway:
        return self._script(capability, "blocked")

    def _script(self, capability: str, status: str, result: Any = None) -> FakeGateway:
        self._scripts.insert(0, (capability, _Script(status, result)))
        return self

    def approve(self, call_id: str | None = None) -> None:
        """Approves a waiting call, or all of them."""
        for call in self._waiting("awaiting_approval", call_id):
            call.status = "allowed" if call.mode == "check" else "done"

    def deny(self, call_id: str | None = None, note: str | None = None) -> None:
        """Denies a waiting call, or all of them."""
        for call in self._waiting("awaiting_approval", call_id):
            call.status, call.note = "denied", note

    def expire(self, call_id: str | None = None) -> None:
        for call in self._waiting("awaiting_approval", call_id):
            call.status = "expired"

    def release(self, call_id: str | None = None) -> None:
        """Lets held writes happen."""
        for call in self._waiting("held", call_id):
            call.status = "done"

    def fail_next(self, status: int = 503, code: str = "gateway.unavailable", retry: str = "after") -> None:
        """The next request is answered with a problem document."""

        def answer(_: httpx.Request) -> httpx.Response:
            return _problem(code, "scripted by a test", status, retry)

        self._faults.append(answer)

    def client(self, **options: Any) -> SluiceClient:
        """A client of this gateway."""
        import httpx

        return SluiceClient("http://fake", key="sga_fake", transport=httpx.MockTransport(self.answer), **options)

    def async_client(self, **options: Any) -> AsyncSluiceClient:
        """An asynchronous client of this gateway."""
        import httpx

        async def answer(request: httpx.Request) -> httpx.Response:
            return self.answer(request)

        return AsyncSluiceClient("http://fake", key="sga_fake", transport=httpx.MockTransport(answer), **options)

    def _waiting(self, status: str, call_id: str | None) -> list[FakeCall]:
        with self._lock:
            found = [call for call in self.calls if call.status == status and call_id in (None, call.call_id)]
        if call_id is not None and not found:
            raise ValueError(f"no call {call_id} is {status}")
        return found

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answers one request."""
        with self._lock:
            if self._faults:
                return self._faults.pop(0)(request)
            if not request.headers.get("authorization", "").startswith("Bearer "):
                return _problem("identity.missing", "the request carries no credential", 401, "after_change")
            parts = request.url.path.strip("/").split("/")
            body: Any = json.loads(request.content) if request.content else {}
            match (request.method, parts):
                case ("POST", ["v1", "calls"]):
                    return self._make(body)
                case ("GET", ["v1", "calls", call_id]):
                    return self._with(call_id, lambda call: _json(200, call.view()))
                case ("POST", ["v1", "calls", call_id, "cancel"]):
                    return self._with(call_id, self._cancel)
                case ("POST", ["v1", "sessions"]):
                    return self._open(body)
                case ("DELETE", ["v1", "sessions", session_id]) if session_id in self.sessions:
                    self.sessions[session_id].ended = True
                    return _json(204, None)
                case ("POST", ["v1", "sessions", session_id, "observations"]) if session_id in self.sessions:
                    self.sessions[session_id].seen.append((body["capability"], body["text"]))
                    return _json(200, {"verdict": "pass", "text": body["text"]})
                case ("GET", ["v1", "capabilities"]):
                    return _json(200, {"data": [], "next_cursor": None, "has_more": False})
                case ("GET", ["v1", "whoami"]):
                    return _json(200, {"kind": "agent", "name": "fake"})
                case _:
                    return _problem("door.not_found", "there is no resource at this address", 404, "after_change")

    def _make(self, body: Mapping[str, Any]) -> httpx.Response:
        key = body.get("idempotency_key")
        capability, arguments, mode = body["capability"], dict(body["arguments"]), body.get("mode", "execute")
        for call in self.calls:
            if key is not None and call.key == key:
                if (call.capability, call.arguments, call.mode) != (capability, arguments, mode):
                    return _problem("call.key_reuse", "the key belongs to a different call", 409, "after_change")
                return self._told(call)
        script = next((s for name, s in self._scripts if _fits(name, capability)), None)
        if script is None and capability.startswith("state.persistent."):
            script = _Script("done", self._keep(capability, arguments))
        status = script.status if script else "blocked"
        if mode == "check":
            status = "allowed" if status in ("done", "held") else status
        call_id = f"call_{len(self.calls) + 1:032x}"
        result = script.result if script else None
        call = FakeCall(call_id, capability, arguments, mode, body.get("session_id"), key, status, result)
        self.calls.append(call)
        return self._told(call)

    def _told(self, call: FakeCall) -> httpx.Response:
        if call.status == "blocked":
            return _json(403, call.view())
        if call.status in _ENDED:
            code, text, status, retry = _ENDED[call.status]
            return _problem(code, f"{text}, and wrote: {call.note}" if call.note else text, status, retry, call.call_id)
        return _json(200 if call.status in ("done", "allowed") else 202, call.view())

    def _keep(self, capability: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if capability.endswith(".set"):
            self._state[arguments["key"]] = arguments["value"]
            return {}
        return {"found": arguments["key"] in self._state, "value": self._state.get(arguments["key"])}

    def _with(self, call_id: str, do: Callable[[FakeCall], httpx.Response]) -> httpx.Response:
        for call in self.calls:
            if call.call_id == call_id:
                return do(call)
        return _problem("call.not_found", "there is no such call for this credential", 404, "after_change")

    def _cancel(self, call: FakeCall) -> httpx.Response:
        if call.status not in ("held", "awaiting_approval"):
            text = f"the write is already {call.status}"
            return _problem("hold.too_late", text, 409, "never", call.call_id)
        call.status = "cancelled"
        view = {"buffer_id": call.buffer_id, "call_id": call.call_id, "agent": "fake", "capability": call.capability}
        view |= {"service": call.capability.partition(".")[0], "status": "cancelled", "state": "cancelled"}
        rest = {"tier": "notify", "weight": 1, "attempts": 0, "admitted_at": "2030-01-01T00:00:00.000Z"}
        return _json(200, view | rest | {"digest": "sha256-v1:00", "version": 2})

    def _open(self, body: Mapping[str, Any]) -> httpx.Response:
        session = _Session(f"sess_{len(self.sessions) + 1:032x}", body.get("client"))
        self.sessions[session.session_id] = session
        view = {"session_id": session.session_id, "agent": "fake", "client": session.client, "tainted": False}
        return _json(201, view | {"opened_at": "2030-01-01T00:00:00.000Z", "has_task": "task" in body})


def _fits(pattern: str, capability: str) -> bool:
    return capability.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == capability


def _json(status: int, body: Any) -> httpx.Response:
    import httpx

    if body is None:
        return httpx.Response(status)
    return httpx.Response(status, content=json.dumps(body), headers={"content-type": "application/json"})


def _problem(code: str, text: str, status: int, retry: str, call_id: str | None = None) -> httpx.Response:
    import httpx

    body: dict[str, Any] = {"type": f"urn:sluice:problem:{code}", "title": text, "status": status, "detail": text}
    body |= {"code": code, "hint": "scripted by a test", "retry": retry}
    if retry == "after":
        body["retry_after_ms"] = 10
    if call_id is not None:
        body["call_id"] = call_id
    headers = {"content-type": "application/problem+json"}
    return httpx.Response(status, content=json.dumps(body), headers=headers)
