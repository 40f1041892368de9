"""What goes wrong between client and gateway, and in what a program passes in."""

from __future__ import annotations

import asyncio
import datetime
import http.server
import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluicegate import (
    AsyncSluiceClient,
    CredentialError,
    InvalidCallError,
    ParkedCallError,
    RateLimitedError,
    ReportError,
    ResponseError,
    SluiceClient,
    UnavailableError,
    WebhookError,
    verify_webhook,
)
from sluicegate._flow import RetryPolicy

DONE = {"call_id": "call_1", "status": "done", "result": None}
QUICK = RetryPolicy(attempts=4, first_pause=0.01, longest_pause=0.5)


class ScriptedServer:
    """A server that gives scripted answers and remembers what it was sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[Callable[[Any], None]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                outer.seen.append((self.path, dict(self.headers.items()), self.rfile.read(length)))
                answer = outer.answers.pop(0) if outer.answers else json_answer(200, DONE)
                answer(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def keys(self) -> list[str]:
        return [json.loads(body)["idempotency_key"] for _, _, body in self.seen]


def json_answer(status: int, body: Any, kind: str = "application/json", **headers: str) -> Callable[[Any], None]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: Any) -> None:
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def problem(status: int, code: str, retry: str, **more: Any) -> Callable[[Any], None]:
    body = {"type": "urn:x", "title": "t", "status": status, "detail": "d", "code": code, "hint": "h", "retry": retry}
    return json_answer(status, body | more, "application/problem+json")


def hang_up(handler: Any) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    running = ScriptedServer()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def scripted(server: ScriptedServer) -> SluiceClient:
    return SluiceClient(server.url, key="sga_secretkey", timeout=0.4, retries=QUICK)


def test_a_lost_answer_is_asked_for_again_under_the_same_key(server, scripted):
    server.answers = [hang_up, hang_up]
    assert scripted.call("email.send", {"to": "a"}).status == "done"
    assert len(set(server.keys())) == 1
    assert len(server.seen) == 3


def test_two_calls_have_two_keys(server, scripted):
    scripted.call("email.send")
    scripted.call("email.send")
    assert len(set(server.keys())) == 2


def test_a_slow_gateway_ends_in_an_error_that_says_so(server, scripted):
    gone = threading.Event()
    server.answers = [lambda _: gone.wait(20)] * 4
    scripted = SluiceClient(server.url, key="sga_x", timeout=0.1, retries=RetryPolicy(2, 0.01, 0.1))
    begun = time.monotonic()
    with pytest.raises(UnavailableError) as no:
        scripted.whoami()
    gone.set()
    assert no.value.retry == "safe_to_repeat"
    assert time.monotonic() - begun < 5
    assert len(server.seen) == 2


def test_no_gateway_is_an_error_with_a_hint():
    with pytest.raises(UnavailableError) as no:
        SluiceClient("http://127.0.0.1:9", key="sga_x", retries=QUICK).call("email.send")
    assert "nothing was sent" in no.value.hint


def test_advice_to_wait_is_followed_within_the_limit_of_the_client(server, scripted):
    server.answers = [problem(429, "door.too_many", "after", retry_after_ms=50)]
    begun = time.monotonic()
    assert scripted.call("email.send").status == "done"
    assert time.monotonic() - begun >= 0.05
    server.answers = [problem(429, "hold.queue_full", "after", retry_after_ms=60000)]
    with pytest.raises(RateLimitedError) as no:
        scripted.call("email.send")
    assert no.value.retry_after == 60
    assert len(server.seen) == 3


@pytest.mark.parametrize("advice", ["never", "after_change", "after_person", "after", "something_new"])
def test_what_must_not_be_repeated_is_sent_once(server, scripted, advice):
    server.answers = [problem(503, "gateway.new_code", advice)] * 4
    with pytest.raises(UnavailableError) as no:
        scripted.call("email.send")
    assert no.value.code == "gateway.new_code"
    assert len(server.seen) == 1


def test_a_session_is_not_opened_twice(server, scripted):
    server.answers = [hang_up]
    with pytest.raises(UnavailableError):
        scripted.sessions.open()
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"call_id":1,"status":"done"}',
        b"\xff\xfe",
        b'{"call_id":"c"}',
        b"[" * 5000,
    ],
)
def test_broken_json_is_never_taken_for_an_answer(server, scripted, body):
    server.answers = [json_answer(200, body)]
    with pytest.raises(ResponseError) as no:
        scripted.call("email.send")
    assert no.value.code == "client.bad_answer"


def test_an_unknown_status_does_not_count_as_allowed(server, scripted):
    ran: list[str] = []
    gated = scripted.gate("x")(lambda: ran.append("ran"))
    for status in ("done", "observed", "", "ALLOWED", "held"):
        server.answers = [json_answer(200, DONE | {"status": status})] + [json_answer(200, DONE)] * 2
        with pytest.raises(Exception, match="call") as no:
            gated()
        assert no.type.__module__ == "sluicegate.errors"
    assert ran == []


def test_a_page_of_a_proxy_is_not_an_answer(server, scripted):
    server.answers = [json_answer(200, b"<html>login</html>", "text/html")]
    with pytest.raises(ResponseError):
        scripted.whoami()
    server.answers = [json_answer(302, b"", "text/html", location="http://127.0.0.1:9/")]
    with pytest.raises(ResponseError):
        scripted.whoami()


def test_an_answer_that_is_too_large_is_not_read(server):
    client = SluiceClient(server.url, key="sga_x", answer_limit=10_000)
    server.answers = [json_answer(200, DONE | {"result": "x" * 100_000})]
    with pytest.raises(ResponseError):
        client.call("email.read")


def test_a_cut_stream_continues_after_the_last_event(server):
    def part(*events: str) -> Callable[[Any], None]:
        return json_answer(200, "".join(events).encode(), "text/event-stream")

    event = 'id: n:{0}\nevent: hold.done\ndata: {{"n":{0}}}\n\n'
    server.answers = [part(event.format(1), "id: n:2\nevent: hold.d"), part(event.format(2), event.format(3))]
    client = SluiceClient(server.url, key="sga_x", retries=QUICK)
    stream = client.events(["hold.*"])
    assert [next(stream).data["n"] for _ in range(3)] == [1, 2, 3]
    assert server.seen[1][1]["last-event-id"] == "n:1"


def test_a_stream_of_something_else_is_an_error(server):
    server.answers = [json_answer(200, b"id: 1\ndata: {\n\n", "text/event-stream")]
    with pytest.raises(ResponseError):
        next(SluiceClient(server.url, key="sga_x", retries=QUICK).events())


class Opaque:
    def __repr__(self) -> str:
        return "hunter2"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Opaque(), {1, 2}, b"bytes", datetime.datetime(2026, 1, 1), "\ud800", {("a",): 1}],
)
def test_arguments_without_a_json_form_are_refused_before_anything_is_sent(server, scripted, value):
    with pytest.raises(InvalidCallError) as no:
        scripted.call("email.send", {"body": value})
    assert no.value.code == "client.not_json"
    assert "hunter2" not in str(no.value)
    assert server.seen == []


def test_arguments_that_contain_themselves_are_refused(server, scripted):
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(InvalidCallError):
        scripted.call("email.send", loop)
    assert server.seen == []


def test_no_key_no_address_and_odd_keys_are_refused(tmp_path, monkeypatch):
    for name in ("SLUICE_AGENT_KEY", "SLUICE_AGENT_KEY_FILE", "SLUICE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CredentialError):
        SluiceClient()
    with pytest.raises(CredentialError):
        SluiceClient(key_file=tmp_path / "none")
    for odd in ("", "sga_a b", "sga_\n", "sga_ü"):
        with pytest.raises(CredentialError):
            SluiceClient(key=odd)
    with pytest.raises(InvalidCallError):
        SluiceClient("127.0.0.1:7420", key="sga_x")
    file = tmp_path / "key"
    file.write_text("sga_from_file\n")
    monkeypatch.setenv("SLUICE_AGENT_KEY_FILE", str(file))
    monkeypatch.setenv("SLUICE_URL", "http://127.0.0.1:1/")
    client = SluiceClient()
    assert (client.settings.url, client.settings.key.reveal()) == ("http://127.0.0.1:1", "sga_from_file")


def test_secrets_are_in_no_log_and_no_error(server, caplog):
    caplog.set_level(logging.DEBUG)
    client = SluiceClient(server.url, key="sga_topsecret", timeout=0.2, retries=QUICK)
    server.answers = [hang_up] * 4
    with pytest.raises(UnavailableError) as no:
        client.call("email.send", {"body": "password hunter2"})
    parts = [
        str(no.value),
        repr(no.value),
        repr(no.value.__cause__),
        repr(no.value.__context__),
        caplog.text,
        repr(client),
    ]
    trace = no.value.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if type(value).__module__.startswith("sluicegate"):
                parts.append(repr(value))
        trace = trace.tb_next
    for part in parts:
        assert "hunter2" not in part
        assert "topsecret" not in part


def test_the_environment_of_a_proxy_is_not_used(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert SluiceClient(server.url, key="sga_x").call("email.send").status == "done"


def test_a_request_that_is_too_large_has_the_code_of_the_gateway(client):
    with pytest.raises(InvalidCallError) as no:
        client.call("state.persistent.set", {"key": "k", "value": "x" * 1_200_000})
    assert no.value.code == "door.too_large"


def test_a_huge_result_of_a_function_is_not_shown_unreported(client):
    with client.session() as inside:
        ran: list[int] = []

        @inside.gate("huge")
        def huge() -> str:
            ran.append(1)
            return "x" * 1_000_000

        @inside.gate("opaque")
        def opaque() -> object:
            ran.append(2)
            return Opaque()

        for function in (huge, opaque):
            with pytest.raises(ReportError) as no:
                function()
            assert "do not run it again" in no.value.hint
        assert ran == [1, 2]


def test_a_gateway_that_restarts_answers_the_same_call_again(own_gateway):
    client = SluiceClient(own_gateway.url, key=own_gateway.key, retries=RetryPolicy(attempts=12, longest_pause=15))
    held = client.call("alerts.send", {"message": "before"}, idempotency_key="k-restart")
    stopped = threading.Thread(target=lambda: (own_gateway.stop(), own_gateway.start()))
    stopped.start()
    again = client.call("alerts.send", {"message": "before"}, idempotency_key="k-restart")
    stopped.join()
    assert again.call_id == held.call_id
    assert client.call("alerts.send", {"message": "before"}, idempotency_key="k-restart").call_id == held.call_id


def test_a_wrong_clock_of_this_machine_changes_nothing(gateway, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    client = SluiceClient(gateway.url, key=gateway.key, on_approval="wait", approval_deadline=30)
    ran: list[str] = []
    gated = client.gate("ask_clock")(lambda: ran.append("ran"))

    def approve() -> None:
        while not gateway.pending():
            threading.Event().wait(0.02)
        gateway.decide("approve")

    thread = threading.Thread(target=approve, daemon=True)
    thread.start()
    gated()
    thread.join()
    assert ran == ["ran"]


def test_a_function_that_never_returns_can_be_cancelled(gateway):
    async def walk() -> None:
        async with AsyncSluiceClient(gateway.url, key=gateway.key) as client:

            @client.gate("hang", operation=lambda _: "hang-" + gateway.url)
            async def hang() -> None:
                await asyncio.Event().wait()

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(hang(), 1.0)
            with pytest.raises(Exception, match="not known"):
                await hang()

    asyncio.run(walk())


def test_errors_travel_between_processes():
    parked = ParkedCallError("once-1", "call_1", "appr_1")
    copy = pickle.loads(pickle.dumps(parked))  # noqa: S301
    assert (type(copy), copy.parked, copy.call_id, copy.code) == (ParkedCallError, "once-1", "call_1", "client.parked")


def test_the_context_of_a_trace_is_passed_on(server, scripted):
    propagate = pytest.importorskip("opentelemetry.propagate")
    from opentelemetry import trace

    assert propagate
    context = trace.SpanContext(0x1234, 0x5678, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        scripted.call("email.send")
    headers = {name.lower(): value for name, value in server.seen[0][1].items()}
    assert headers["traceparent"].startswith("00-" + "1234".zfill(32))


def test_importing_the_package_loads_no_client_library():
    program = "import sys, sluicegate; print(sorted({'httpx', 'msgspec', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_webhooks_are_verified():
    # The example of the Standard Webhooks specification.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "Webhook-Timestamp": "1614265330",
        "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    now = 1614265330.0
    assert verify_webhook(headers, body, secret, now=now) == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert verify_webhook(headers, body, ["whsec_AAAA", secret], now=now + 299)
    bad: list[tuple[dict[str, str], bytes, float]] = [
        (headers, body + b" ", now),
        (headers, body, now + 301),
        (headers, body, now - 301),
        (headers | {"webhook-id": "other"}, body, now),
        (headers | {"webhook-signature": "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, body, now),
        (headers | {"webhook-signature": ""}, body, now),
        ({}, body, now),
    ]
    for given, text, at in bad:
        with pytest.raises(WebhookError):
            verify_webhook(given, text, secret, now=at)
    for odd in ("whsec_", "whsec_!!", ""):
        with pytest.raises(WebhookError):
            verify_webhook(headers, body, odd, now=now)
