"""Events: the agent's part of the audit log, as a stream that continues after a break.

Promise: an event is given once, and none is skipped between the first and the last one that is read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ._flow import HttpAnswer, SendRequest, TransportFailure, broken_answer, problem, unreachable
from .errors import SluiceError

_LONGEST_DATA = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """One entry of the audit log. `id` continues the stream after it."""

    id: str
    type: str
    data: dict[str, Any]


@dataclass(slots=True)
class EventFeed:
    """Reads lines of a stream, and decides how it goes on after a break."""

    types: Sequence[str]
    after: str | None
    attempts: int
    breaks: int = 0
    _id: str = ""
    _kind: str = ""
    _data: list[str] = field(default_factory=list[str])
    _size: int = 0

    def request(self) -> SendRequest:
        """The request that opens the stream, or opens it again."""
        self._forget()
        headers = {"accept": "text/event-stream"}
        if self.after is not None:
            headers["last-event-id"] = self.after
        params = {"types": ",".join(self.types)} if self.types else None
        # A heartbeat comes every 15 s.
        return SendRequest("GET", "/v1/events", params=params, headers=headers, patience=30.0)

    def _forget(self) -> None:
        self._id, self._kind, self._data, self._size = "", "", [], 0

    def take(self, line: str) -> GatewayEvent | None:
        """Takes one line; gives an event when it is complete."""
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._size += len(value)
            if self._size > _LONGEST_DATA:
                raise broken_answer("an event is too large")
            self._data.append(value)
        else:
            self.breaks = 0
        return None

    def _complete(self) -> GatewayEvent | None:
        if not self._data:
            self._forget()
            return None
        try:
            data = json.loads("\n".join(self._data))
        except ValueError:
            raise broken_answer("an event is not JSON") from None
        if not isinstance(data, dict) or not self._id:
            raise broken_answer("an event has no id or is not an object")
        event = GatewayEvent(self._id, self._kind, cast("dict[str, Any]", data))
        self.after, self.breaks = event.id, 0
        self._forget()
        return event

    def pause(self, ended: TransportFailure | HttpAnswer) -> float:
        """How long to wait before the stream is opened again; raises if it must not be."""
        self.breaks += 1
        if isinstance(ended, TransportFailure):
            error: SluiceError = unreachable(ended)
            wait = None
        else:
            error = problem(ended)
            wait = error.retry_after
            if error.retry not in ("after", "safe_to_repeat"):
                raise error
        if self.breaks > self.attempts:
            raise error
        backoff = min(0.2 * 2**self.breaks, 10.0) * random.uniform(0.5, 1.0)  # noqa: S311
        return max(wait or 0.0, backoff)
