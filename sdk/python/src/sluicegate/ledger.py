"""Ledgers: one run per operation, also across crashes and processes.

A gated function that is given an operation key claims the key before it runs, and stores the result after it. A second
run finds the claim. Promise: a function whose outcome is not known is not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, Protocol, cast

from ._flow import Flow, to_json
from ._operations import CallIntent, make_call, wait_for_call
from .errors import (
    AlreadyFinishedError,
    ConflictError,
    InvalidCallError,
    OutcomeUnknownError,
    ReportError,
    SluiceError,
)
from .settings import ClientSettings


class OperationLedger(Protocol):
    """Claims operations. Both methods are flows, so that one ledger serves both clients."""

    def claim(self, operation: str, settings: ClientSettings) -> Flow[FinishedRun | None]:
        """Claims an operation. `None`: it was claimed now and may run. A value: it ran before, with this result."""
        ...

    def finish(self, operation: str, result: object, settings: ClientSettings) -> Flow[None]:
        """Stores the result of a claimed operation."""
        ...


class FinishedRun:
    """An operation that ran to its end before."""

    __slots__ = ("_stored",)

    def __init__(self, stored: dict[str, Any]) -> None:
        self._stored = stored

    def result(self, operation: str) -> Any:
        """The result of that run, if it could be stored."""
        if "result" not in self._stored:
            raise self.refusal(operation)
        return self._stored["result"]

    def refusal(self, operation: str) -> AlreadyFinishedError:
        """The error that refuses a second run. It has the result of the first one, if that could be stored."""
        error = AlreadyFinishedError(
            "the operation has run before and is not run again",
            code="client.finished",
            hint="do not run it again; `result` has what it returned, if that could be stored",
            other=operation,
        )
        error.result = self._stored.get("result")
        return error


def _unknown(operation: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the operation was begun before, and how it ended is not known",
        code="client.outcome_unknown",
        hint="it may have happened: do not run it again; a person looks at what it changed",
        retry="after_person",
        other=operation,
    )


def _no_ledger(call_id: str) -> InvalidCallError:
    return InvalidCallError(
        "the ledger needs approval for its own entry, so the operation is not run",
        code="client.ledger",
        hint="allow `state.persistent.*` for this agent, or use a FileLedger",
        retry="after_person",
        call_id=call_id,
    )


def _stored(result: object) -> dict[str, Any]:
    """A result as it is stored. A result without a JSON form, or a large one, is not stored; its run is."""
    try:
        if len(to_json(result)) <= 64 * 1024:
            return {"state": "finished", "result": result}
    except SluiceError:
        pass
    return {"state": "finished"}


class GatewayLedger:
    """Claims in the agent's own state at the gateway: `state.persistent`, which the rules must allow."""

    def __init__(self, prefix: str = "sluicegate/once/") -> None:
        self._prefix = prefix

    def _name(self, operation: str) -> str:
        return self._prefix + hashlib.sha256(operation.encode()).hexdigest()[:48]

    def claim(self, operation: str, settings: ClientSettings) -> Flow[FinishedRun | None]:
        name = self._name(operation)
        # Idempotency keys end after 30 days; the entry does not.
        begun = yield from self._get(name, settings)
        if begun is None:
            # Each run writes a value of its own under one idempotency key: only the first one is that call.
            value = {"state": "begun", "run": secrets.token_hex(16)}
            try:
                yield from self._set(name, value, f"claim-{name}", settings)
            except ConflictError as error:
                if error.code != "call.key_reuse":
                    raise
            else:
                return None
        stored = yield from self._get(f"{name}/finished", settings)
        if isinstance(stored, dict):
            return FinishedRun(cast("dict[str, Any]", stored))
        raise _unknown(operation)

    def finish(self, operation: str, result: object, settings: ClientSettings) -> Flow[None]:
        name = self._name(operation)
        yield from self._set(f"{name}/finished", _stored(result), f"finish-{name}", settings)

    def _get(self, name: str, settings: ClientSettings) -> Flow[object]:
        view = yield from make_call(CallIntent("state.persistent.get", {"key": name}), settings)
        result: object = view.result
        if view.status != "done" or not isinstance(result, dict):
            raise _no_ledger(view.call_id)
        return cast("dict[str, object]", result).get("value")

    def _set(self, name: str, value: dict[str, Any], key: str, settings: ClientSettings) -> Flow[None]:
        intent = CallIntent("state.persistent.set", {"key": name, "value": value}, key=key)
        view = yield from make_call(intent, settings)
        if view.status == "awaiting_approval":
            raise _no_ledger(view.call_id)
        yield from wait_for_call(view, settings, 30.0)


class FileLedger:
    """Claims in a folder of this machine, for agents that may not use `state.persistent`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def _file(self, operation: str) -> Path:
        return self._folder / hashlib.sha256(operation.encode()).hexdigest()

    def claim(self, operation: str, settings: ClientSettings) -> Flow[FinishedRun | None]:
        yield from ()
        file = self._file(operation)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as claimed:
                claimed.write(b'{"state":"begun"}')
                claimed.flush()
                os.fsync(claimed.fileno())
            _sync_folder(self._folder)
        except FileExistsError:
            try:
                stored = json.loads(file.read_bytes())
            except ValueError:
                raise _unknown(operation) from None
            if isinstance(stored, dict) and cast("dict[str, Any]", stored).get("state") == "finished":
                return FinishedRun(cast("dict[str, Any]", stored))
            raise _unknown(operation) from None
        return None

    def finish(self, operation: str, result: object, settings: ClientSettings) -> Flow[None]:
        yield from ()
        file = self._file(operation)
        beside = file.with_suffix(f".{secrets.token_hex(4)}")
        try:
            with beside.open("wb") as written:
                written.write(to_json(_stored(result)))
                written.flush()
                os.fsync(written.fileno())
            beside.replace(file)
            _sync_folder(self._folder)
        except OSError as error:
            text = f"the function ran, but its end could not be stored ({type(error).__name__})"
            raise ReportError(text, code="client.ledger", hint="do not run it again") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
