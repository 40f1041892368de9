"""The synchronous client.

Promise: a call that the gateway did not allow raises; a call is sent again only under its own idempotency key.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _operations as operations
from ._flow import RetryPolicy, new_key
from ._operations import CallIntent, GatePass
from ._transport import SyncTransport
from .errors import InvalidCallError
from .events import EventFeed, GatewayEvent
from .gate import ArgumentReader, GatedFunction, GateRule, GateRun, capability_of, gated_function, mark_gated
from .ledger import GatewayLedger, OperationLedger
from .settings import ClientSettings, OnApproval, find_key, find_url

if TYPE_CHECKING:
    from . import _schema as schema

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class CallHandle:
    """A call that was made: its state, and what can be done about it."""

    def __init__(self, client: SluiceClient, view: schema.CallView) -> None:
        self._client = client
        self.view = view

    @property
    def call_id(self) -> str:
        return self.view.call_id

    @property
    def status(self) -> str:
        return self.view.status

    @property
    def result(self) -> Any:
        """The result, once the call is done."""
        return self.view.result

    def refresh(self) -> CallHandle:
        """Reads the present state."""
        self.view = self._client.drive(operations.read_call(self.call_id, self._client.settings))
        return self

    def wait(self, timeout: float | None = None) -> CallHandle:
        """Waits for the end, with `timeout` in seconds. Raises unless the call ended well."""
        self.view = self._client.drive(operations.wait_for_call(self.view, self._client.settings, timeout))
        return self

    def cancel(self) -> CallHandle:
        """Cancels the write. Raises `ConflictError` if it is too late."""
        self._client.drive(operations.cancel_call(self.call_id, self._client.settings))
        return self.refresh()

    def __repr__(self) -> str:
        return f"CallHandle({self.call_id}, {self.status})"


class CapabilityPath:
    """A capability by its name: `client.email.send(to=…)`."""

    __slots__ = ("_client", "_name")

    def __init__(self, client: SluiceClient, name: str) -> None:
        self._client = client
        self._name = name

    def __getattr__(self, part: str) -> CapabilityPath:
        if part.startswith("_"):
            raise AttributeError(part)
        return CapabilityPath(self._client, f"{self._name}.{part}")

    def __call__(self, **arguments: Any) -> CallHandle:
        return self._client.call(self._name, arguments)


class SessionHandle:
    """A session. Calls of its `client` belong to it."""

    def __init__(self, client: SluiceClient, session_id: str) -> None:
        self.session_id = session_id
        self.client = client.in_session(session_id)

    def state_task(self, task: str) -> None:
        """States what the user asked for. Needs a task key."""
        self.client.drive(operations.state_task(self.session_id, task, self.client.settings))

    def observe(self, capability: str, text: str) -> schema.ObservationView:
        """Reports outside text before an agent sees it. Show the text of the answer, not the reported one."""
        flow = operations.observe(self.session_id, capability_of(capability), text, self.client.settings)
        return self.client.drive(flow)

    def end(self) -> None:
        self.client.drive(operations.end_session(self.session_id, self.client.settings))

    def __enter__(self) -> SluiceClient:
        return self.client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class SessionActions:
    """Opens and joins sessions."""

    def __init__(self, client: SluiceClient) -> None:
        self._client = client

    def open(self, *, client: str | None = None, task: str | None = None) -> SessionHandle:
        """Opens a session. A `task` needs a task key: an agent cannot state what its user asked for."""
        view = self._client.drive(operations.open_session(client, task, self._client.settings))
        return SessionHandle(self._client, view.session_id)

    def join(self, session_id: str) -> SessionHandle:
        """A session that was opened before, for example by the parent of a nested agent."""
        return SessionHandle(self._client, operations.path_part(session_id))


class ApprovalActions:
    """Asks people about actions that this program carries out itself."""

    def __init__(self, client: SluiceClient) -> None:
        self._client = client

    def request(
        self,
        title: str,
        preview: str,
        *,
        action_type: str,
        options: Sequence[str] | None = None,
        expires_in: int | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> schema.GateReceiptView:
        """Asks, and returns at once."""
        settings = self._client.settings
        body: schema.GateRequestBody = {
            "title": title,
            "preview": preview,
            "action_type": action_type,
            "session_id": session_id or settings.session_id or "default",
        }
        if options is not None:
            body["options"] = list(options)
        if expires_in is not None:
            body["expires_in_sec"] = expires_in
        return self._client.drive(operations.request_approval(body, idempotency_key or new_key(), settings))

    def get(self, approval_id: str, wait: float = 0.0) -> schema.GateRequestView:
        """The state of a request, after waiting for a decision up to `wait` seconds (60 at most)."""
        return self._client.drive(operations.read_approval(approval_id, self._client.settings, wait))

    def ask(
        self,
        title: str,
        preview: str,
        *,
        action_type: str,
        options: Sequence[str] | None = None,
        expires_in: int | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> schema.GateRequestView:
        """Asks, and waits for the decision. A denial is an answer too: look at `status`."""
        receipt = self.request(
            title,
            preview,
            action_type=action_type,
            options=options,
            expires_in=expires_in,
            session_id=session_id,
            idempotency_key=idempotency_key,
        )
        flow = operations.wait_for_approval(receipt.approval_id, self._client.settings, timeout)
        return self._client.drive(flow)


class SluiceClient:
    """A client of one gateway, with the key of one agent. It can be used by several threads."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        task_key: str | None = None,
        task_key_file: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        on_approval: OnApproval = "park",
        approval_deadline: float | None = None,
        timeout: float = 10.0,
        answer_limit: int = 64 * 1024 * 1024,
        retries: RetryPolicy | None = None,
        verify: Any = True,
        transport: Any = None,
    ) -> None:
        self.settings = ClientSettings(
            url=find_url(url),
            key=find_key(key, key_file, "SLUICE_AGENT_KEY", required=True),
            task_key=find_key(task_key, task_key_file, "SLUICE_TASK_KEY", required=False),
            session_id=session_id,
            on_approval=on_approval,
            approval_deadline=approval_deadline,
            timeout=timeout,
            answer_limit=answer_limit,
            retries=retries or RetryPolicy(),
            verify=verify,
        )
        self._transport = SyncTransport(self.settings, transport)
        self.drive = self._transport.drive

    def in_session(self, session_id: str | None) -> SluiceClient:
        """This client, with every call in a session. It shares the connections."""
        clone = object.__new__(type(self))
        clone.settings = self.settings.in_session(session_id)
        clone._transport = self._transport
        clone.drive = self.drive
        return clone

    @property
    def sessions(self) -> SessionActions:
        return SessionActions(self)

    @property
    def approvals(self) -> ApprovalActions:
        return ApprovalActions(self)

    def session(self, *, client: str | None = None, task: str | None = None) -> SessionHandle:
        """A session for a `with` block, which gives its client."""
        return self.sessions.open(client=client, task=task)

    def call(
        self,
        capability: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        reason: str | None = None,
        account: str | None = None,
        allow_duplicate: bool = False,
        wait: float | None = None,
        on_approval: OnApproval | None = None,
        deadline: float | None = None,
    ) -> CallHandle:
        """Makes a call. Its handle may be done, held, or (with `on_approval: park`) waiting for a person."""
        settings = self.settings
        key = idempotency_key or new_key()
        intent = CallIntent(
            capability,
            arguments or {},
            key=key,
            reason=reason,
            account=account,
            allow_duplicate=allow_duplicate,
            wait=wait,
        )
        view = self.drive(operations.make_call(intent, settings))
        how = on_approval or settings.on_approval
        if view.status == "awaiting_approval" and how != "park":
            limit = deadline if deadline is not None else settings.approval_deadline
            view = self.drive(operations.settle_approval(view, settings, how, limit, key))
        return CallHandle(self, view)

    def check(self, capability: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> GatePass:
        """Asks whether this program may do something itself. Raises unless it is allowed now."""
        operation: str | None = options.pop("operation", None)
        on_approval: OnApproval = options.pop("on_approval", None) or self.settings.on_approval
        deadline: float | None = options.pop("deadline", self.settings.approval_deadline)
        intent = CallIntent(capability, arguments or {}, "check", **options)
        return self.drive(operations.pass_gate(intent, self.settings, operation, on_approval, deadline))

    def get_call(self, call_id: str) -> CallHandle:
        """A call by its id, for example one that another process parked."""
        return CallHandle(self, self.drive(operations.read_call(call_id, self.settings)))

    def wait(self, call_id: str, timeout: float | None = None) -> CallHandle:
        return self.get_call(call_id).wait(timeout)

    def cancel(self, call_id: str) -> CallHandle:
        self.drive(operations.cancel_call(call_id, self.settings))
        return self.get_call(call_id)

    def capabilities(self) -> list[dict[str, Any]]:
        """The capabilities that this agent may call, with their input schemas."""
        return self.drive(operations.list_capabilities(self.settings))

    def whoami(self) -> dict[str, Any]:
        return self.drive(operations.whoami(self.settings))

    def events(self, types: Sequence[str] = (), *, after: str | None = None) -> Iterator[GatewayEvent]:
        """The agent's part of the audit log, live. Continues after a break; ends only with an error or a `break`."""
        feed = EventFeed(types, after, self.settings.retries.attempts)
        while True:
            for line in self._transport.lines(feed.request()):
                if isinstance(line, str):
                    event = feed.take(line)
                    if event is not None:
                        yield event
                else:
                    time.sleep(feed.pause(line))

    def gate(
        self,
        name: str,
        *,
        operation: Callable[[Mapping[str, Any]], str] | None = None,
        arguments: Callable[..., Mapping[str, Any]] | None = None,
        exclude: Sequence[str] = (),
        on_approval: OnApproval | None = None,
        deadline: float | None = None,
        report: bool | Callable[[Any], str] = True,
        reason: str | None = None,
        ledger: OperationLedger | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        """Gates a function as `custom:<name>`: it runs only if the gateway allows exactly its arguments.

        `operation` names a run by its arguments; an operation runs once, also across crashes and processes.
        """
        rule = GateRule(
            capability_of(name),
            operation,
            arguments,
            frozenset(exclude),
            on_approval,
            deadline,
            report,
            reason,
            ledger or GatewayLedger(),
        )

        def wrap(function: FunctionT) -> FunctionT:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                text = "an asynchronous function needs the gate of an AsyncSluiceClient"
                raise InvalidCallError(text, code="client.gate", hint="use AsyncSluiceClient().gate(…)")
            reader = ArgumentReader(function, rule)
            if inspect.isgeneratorfunction(function):

                @functools.wraps(function)
                def stream(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                    run = GateRun(rule, self.settings, reader.read(args, kwargs))
                    return self._run_generator(run, function, args, kwargs)

                return cast("FunctionT", mark_gated(stream, GatedFunction(rule, reader, function)))

            @functools.wraps(function)
            def gated(*args: Any, **kwargs: Any) -> Any:
                run = GateRun(rule, self.settings, reader.read(args, kwargs))
                return self._run(run, lambda: function(*args, **kwargs))

            return cast("FunctionT", mark_gated(gated, GatedFunction(rule, reader, function)))

        return wrap

    def run_gated(
        self,
        name: str,
        arguments: Mapping[str, Any],
        function: Callable[[], Any],
        *,
        operation: str | None = None,
        on_approval: OnApproval | None = None,
        deadline: float | None = None,
        report: bool | Callable[[Any], str] = True,
        reason: str | None = None,
        ledger: OperationLedger | None = None,
    ) -> Any:
        """Runs `function` if the gateway allows `arguments` as `custom:<name>`. With `operation` it runs once.

        A call that was parked goes on with its parked id as `operation`, and the same arguments.
        """
        rule = GateRule(
            capability_of(name),
            None,
            None,
            frozenset(),
            on_approval,
            deadline,
            report,
            reason,
            ledger or GatewayLedger(),
        )
        return self._run(GateRun(rule, self.settings, arguments, operation), function)

    def _run(self, run: GateRun, function: Callable[[], Any]) -> Any:
        finished = self.drive(run.enter())
        if finished is not None:
            return self.drive(run.report(finished.result(run.operation or "")))
        return self.drive(run.leave(function()))

    def _run_generator(
        self, run: GateRun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Generator[Any, Any, Any]:
        finished = self.drive(run.enter())
        if finished is not None:
            for item in finished.result(run.operation or ""):
                yield self.drive(run.report(item))
            return None
        given: list[Any] = []
        items = function(*args, **kwargs)
        try:
            for item in items:
                if run.operation is not None:
                    given.append(item)
                yield self.drive(run.report(item))
        finally:
            items.close()
        if run.operation is not None:
            self.drive(run.rule.ledger.finish(f"{run.rule.capability}\0{run.operation}", given, self.settings))
        return None

    def resume(self, function: Callable[..., Any], parked: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a gated function whose call was parked, also in another process: its parked id, the same arguments.

        Raises while nobody has decided, after a denial, with other arguments, and if the run has finished before.
        """
        gated = gated_function(function)
        run = GateRun(gated.rule, self.settings, gated.reader.read(args, kwargs), parked, is_resumed=True)
        if inspect.isgeneratorfunction(gated.function):
            return self._run_generator(run, gated.function, args, kwargs)
        return self._run(run, lambda: gated.function(*args, **kwargs))

    def __getattr__(self, service: str) -> CapabilityPath:
        if service.startswith("_"):
            raise AttributeError(service)
        return CapabilityPath(self, service)

    def close(self) -> None:
        self._transport.http.close()

    def __enter__(self) -> SluiceClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.url})"
