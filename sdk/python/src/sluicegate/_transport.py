"""Carries out the steps of flows over httpx, synchronously or not.

Promise: no redirect is followed, no proxy or credential is taken from the environment, an answer has a limit, and no
error holds the request (which holds the key).
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ._flow import Flow, HttpAnswer, PauseFor, SendRequest, TransportFailure, broken_answer
from .errors import CredentialError

if TYPE_CHECKING:
    import httpx

    from .settings import ClientSettings

ResultT = TypeVar("ResultT")


def _headers(settings: ClientSettings, request: SendRequest) -> dict[str, str]:
    headers = {
        "authorization": f"Bearer {_key(settings, request)}",
        "user-agent": settings.user_agent,
        **request.headers,
    }
    if request.body is not None:
        headers["content-type"] = "application/json"
    # The context of a trace is passed on only where the program uses OpenTelemetry already.
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is not None:
        propagate.inject(headers)
    return headers


def _key(settings: ClientSettings, request: SendRequest) -> str:
    key = settings.task_key if request.with_task_key else settings.key
    if key is None:
        raise CredentialError(
            "the client has no task key" if request.with_task_key else "the client has no agent key",
            code="client.no_key",
            hint="set SLUICE_TASK_KEY_FILE" if request.with_task_key else "set SLUICE_AGENT_KEY_FILE, or pass key_file",
            retry="after_change",
        )
    return key.reveal()


def _timeout(settings: ClientSettings, request: SendRequest) -> Any:
    import httpx

    return httpx.Timeout(settings.timeout, read=settings.timeout + request.patience)


def _failure(error: httpx.HTTPError | httpx.InvalidURL | OSError) -> TransportFailure:
    import httpx

    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
    return TransportFailure(type(error).__name__, sent=not isinstance(error, unsent))


def _answer(response: httpx.Response, body: bytes) -> HttpAnswer:
    after = response.headers.get("retry-after", "")
    kind = response.headers.get("content-type", "")
    return HttpAnswer(response.status_code, kind, body, float(after) if after.isdigit() else None)


def _too_large(size: int, settings: ClientSettings) -> bool:
    return size > settings.answer_limit


class SyncTransport:
    """One httpx client; carries out flows."""

    def __init__(self, settings: ClientSettings, transport: Any = None) -> None:
        import httpx

        self.settings = settings
        self.http = httpx.Client(
            base_url=settings.url, transport=transport, verify=settings.verify, trust_env=False, follow_redirects=False
        )

    def send(self, request: SendRequest) -> HttpAnswer | TransportFailure:
        import httpx

        try:
            built = self.http.build_request(
                request.method,
                request.path,
                params=request.params,
                content=request.body,
                headers=_headers(self.settings, request),
                timeout=_timeout(self.settings, request),
            )
            response = self.http.send(built, stream=True)
            try:
                parts, size = list[bytes](), 0
                for part in response.iter_bytes():
                    size += len(part)
                    if _too_large(size, self.settings):
                        raise broken_answer("the answer is larger than `answer_limit`")
                    parts.append(part)
            finally:
                response.close()
            return _answer(response, b"".join(parts))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)

    def drive(self, flow: Flow[ResultT]) -> ResultT:
        """Carries out a flow to its end."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, PauseFor):
                    time.sleep(step.seconds)
                    step = flow.send(None)
                else:
                    step = flow.send(self.send(step))
        except StopIteration as end:
            return end.value

    def lines(self, request: SendRequest) -> Iterator[str | TransportFailure | HttpAnswer]:
        """The lines of a stream; then why it ended. An answer of 400 and above is given as a whole."""
        import httpx

        try:
            with self.http.stream(
                request.method,
                request.path,
                params=request.params,
                headers=_headers(self.settings, request),
                timeout=_timeout(self.settings, request),
            ) as response:
                if response.status_code >= 400:
                    yield _answer(response, response.read())
                    return
                yield from response.iter_lines()
            yield TransportFailure("end of stream", sent=True)
        except httpx.HTTPError as error:
            yield _failure(error)


class AsyncTransport:
    """One asynchronous httpx client; carries out flows."""

    def __init__(self, settings: ClientSettings, transport: Any = None) -> None:
        import httpx

        self.settings = settings
        self.http = httpx.AsyncClient(
            base_url=settings.url, transport=transport, verify=settings.verify, trust_env=False, follow_redirects=False
        )

    async def send(self, request: SendRequest) -> HttpAnswer | TransportFailure:
        import httpx

        try:
            built = self.http.build_request(
                request.method,
                request.path,
                params=request.params,
                content=request.body,
                headers=_headers(self.settings, request),
                timeout=_timeout(self.settings, request),
            )
            response = await self.http.send(built, stream=True)
            try:
                parts, size = list[bytes](), 0
                async for part in response.aiter_bytes():
                    size += len(part)
                    if _too_large(size, self.settings):
                        raise broken_answer("the answer is larger than `answer_limit`")
                    parts.append(part)
            finally:
                await response.aclose()
            return _answer(response, b"".join(parts))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)

    async def drive(self, flow: Flow[ResultT]) -> ResultT:
        """Carries out a flow to its end."""
        import anyio

        try:
            step = next(flow)
            while True:
                if isinstance(step, PauseFor):
                    await anyio.sleep(step.seconds)
                    step = flow.send(None)
                else:
                    step = flow.send(await self.send(step))
        except StopIteration as end:
            return end.value

    async def lines(self, request: SendRequest) -> AsyncIterator[str | TransportFailure | HttpAnswer]:
        """The lines of a stream; then why it ended. An answer of 400 and above is given as a whole."""
        import httpx

        try:
            async with self.http.stream(
                request.method,
                request.path,
                params=request.params,
                headers=_headers(self.settings, request),
                timeout=_timeout(self.settings, request),
            ) as response:
                if response.status_code >= 400:
                    yield _answer(response, await response.aread())
                    return
                async for line in response.aiter_lines():
                    yield line
            yield TransportFailure("end of stream", sent=True)
        except httpx.HTTPError as error:
            yield _failure(error)
