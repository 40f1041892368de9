"""Calls, sessions, approvals and events against the real gateway."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

import pytest

from sluicegate import (
    ApprovalRequiredError,
    AsyncSluiceClient,
    BlockedError,
    ConflictError,
    CredentialError,
    DeniedError,
    FrozenError,
    InvalidCallError,
    NotDoneError,
    NotFoundError,
    SluiceClient,
    WaitTimeoutError,
)


def unique() -> str:
    return uuid.uuid4().hex


def when_asked(gateway: Any, decision: str, **more: Any) -> threading.Thread:
    """Decides the next approval request that appears, beside the test."""

    def decide() -> None:
        for _ in range(600):
            if gateway.pending():
                gateway.decide(decision, **more)
                return
            threading.Event().wait(0.02)

    thread = threading.Thread(target=decide, daemon=True)
    thread.start()
    return thread


def test_a_call_is_done_and_its_repetition_under_one_key_is_the_same_call(gateway, client):
    file = f"{unique()}.txt"
    key = unique()
    first = client.call("filesystem.append", {"path": file, "content": "x"}, idempotency_key=key).wait(20)
    again = client.call("filesystem.append", {"path": file, "content": "x"}, idempotency_key=key).wait(20)
    assert first.status == "done"
    assert again.call_id == first.call_id
    assert (gateway.folder / "workspace" / file).read_text() == "x"


def test_capabilities_are_called_by_their_names(gateway, client):
    name = unique()
    assert client.state.persistent.set(key=name, value={"a": [1, "ü"]}).wait(20).status == "done"
    assert client.state.persistent.get(key=name).result["value"] == {"a": [1, "ü"]}


def test_a_held_write_is_cancelled_before_it_leaves(client):
    held = client.call("alerts.send", {"message": f"cancel me {unique()}"})
    assert held.status == "held"
    assert held.view.cancel_deadline
    assert held.cancel().status == "cancelled"
    with pytest.raises(ConflictError) as late:
        held.cancel()
    assert late.value.code == "hold.too_late"
    with pytest.raises(NotDoneError) as ended:
        held.wait(5)
    assert ended.value.code == "hold.cancelled"


def test_waiting_ends_at_its_time_and_the_call_goes_on(client):
    held = client.call("alerts.send", {"message": f"later {unique()}"})
    with pytest.raises(WaitTimeoutError) as late:
        held.wait(0.2)
    assert late.value.call_id == held.call_id
    assert held.refresh().status == "held"
    held.cancel()


def test_a_rule_that_blocks_is_named(client):
    with pytest.raises(BlockedError) as no:
        client.call("git.push", {"path": "x"})
    assert no.value.code == "policy.blocked"
    assert "clerk.yaml" in (no.value.rule or "")
    assert no.value.retry == "never"
    assert no.value.hint


def test_a_wrong_argument_is_an_invalid_call(client):
    with pytest.raises(InvalidCallError) as no:
        client.call("filesystem.read", {"wrong": 1})
    assert no.value.code == "schema.unknown_argument"
    assert no.value.retry == "after_change"
    assert no.value.request_id


def test_unknown_ids_are_not_found_and_odd_ids_are_not_sent(client):
    with pytest.raises(NotFoundError):
        client.get_call("call_01a1f5c6544000000000000000000000")
    for odd in ("../approvals", "call_1/cancel", "", "call_1?x=1", "ü"):
        with pytest.raises(InvalidCallError) as no:
            client.get_call(odd)
        assert no.value.code == "client.bad_id"


def test_an_approved_call_is_carried_out(gateway, client):
    file = gateway.folder / "workspace" / f"{unique()}.txt"
    file.write_text("x")
    decided = when_asked(gateway, "approve")
    done = client.call("filesystem.delete", {"path": file.name}, on_approval="wait", deadline=30).wait(30)
    decided.join()
    assert done.status == "done"
    assert not file.exists()


def test_a_denied_call_has_the_note_of_the_person(gateway, client):
    file = gateway.folder / "workspace" / f"{unique()}.txt"
    file.write_text("x")
    parked = client.call("filesystem.delete", {"path": file.name})
    assert parked.status == "awaiting_approval"
    gateway.decide("deny", parked.view.approval_id, note="not on Friday")
    with pytest.raises(DeniedError) as no:
        SluiceClient(gateway.url, key=gateway.key).wait(parked.call_id, 20)
    assert "not on Friday" in str(no.value)
    assert file.exists()


def test_with_deny_an_approval_request_is_withdrawn(gateway, client):
    file = gateway.folder / "workspace" / f"{unique()}.txt"
    file.write_text("x")
    with pytest.raises(ApprovalRequiredError) as no:
        client.call("filesystem.delete", {"path": file.name}, on_approval="deny")
    assert client.get_call(no.value.call_id).status == "cancelled"
    assert gateway.pending() == []
    assert file.exists()


def test_sessions_hold_task_and_observations(gateway, client):
    with client.session(client="suite") as inside:
        session = inside.settings.session_id
        assert inside.call("state.session.set", {"key": "k", "value": 1}).wait(20).status == "done"
        assert inside.call("state.session.get", {"key": "k"}).result["value"] == 1
        seen = client.sessions.join(session).observe("read_inbox", "hello")
        assert (seen.verdict, seen.text) == ("pass", "hello")
    asked = client.sessions.open(client="suite", task="greet li@example.org")
    asked.state_task("and ana@example.org")
    assert gateway.api("GET", f"/v1/sessions/{asked.session_id}")["has_task"]
    asked.end()
    with pytest.raises(NotFoundError) as gone:
        asked.client.call("state.session.get", {"key": "k"})
    assert gone.value.code == "identity.session"


def test_an_agent_key_cannot_state_a_task(gateway):
    client = SluiceClient(gateway.url, key=gateway.key, task_key=gateway.key)
    with pytest.raises(CredentialError) as no:
        client.sessions.open(task="pay everybody")
    assert no.value.code == "identity.task_key"


def test_people_are_asked_about_an_action_of_the_program(gateway, client):
    thread = when_asked(gateway, "approve")
    title = f"Restart {unique()}"
    answer = client.approvals.ask(title, "systemctl restart web", action_type="exec_cmd", timeout=30)
    thread.join()
    assert answer.status == "approved"
    receipt = client.approvals.request(f"{title} again", "systemctl stop web", action_type="exec_cmd", expires_in=600)
    assert client.approvals.get(receipt.approval_id).status == "pending"
    gateway.decide("deny", receipt.approval_id)
    assert client.approvals.get(receipt.approval_id).status == "denied"


def test_events_continue_after_the_one_that_was_read_last(client):
    first = client.call("alerts.send", {"message": f"event {unique()}"})
    stream = client.events(["hold.*"])
    reader: list[Any] = []

    def read() -> None:
        for event in stream:
            reader.append(event)
            if len(reader) == 2:
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    threading.Event().wait(0.5)
    first.cancel()
    second = client.call("alerts.send", {"message": f"event {unique()}"})
    thread.join(20)
    assert [event.type for event in reader] == ["hold.cancelled", "hold.held"]
    again = next(iter(client.events(["hold.*"], after=reader[0].id)))
    assert again == reader[1]
    second.cancel()


def test_a_freeze_stops_checks_with_its_own_error(own_gateway):
    client = SluiceClient(own_gateway.url, key=own_gateway.key)
    own_gateway.api("POST", "/v1/freezes", {"reason": "drill"})
    with pytest.raises(FrozenError) as no:
        client.check("custom:deploy", {"env": "prod"})
    assert no.value.code == "freeze.active"


def test_a_revoked_key_stops_at_once_and_its_stream_ends(own_gateway):
    client = SluiceClient(own_gateway.url, key=own_gateway.key)
    key_id = client.whoami()["key_id"]
    failed: list[Exception] = []

    def read() -> None:
        try:
            for _ in client.events():
                pass
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    threading.Event().wait(0.3)
    own_gateway.api("DELETE", f"/v1/keys/{key_id}")
    with pytest.raises(CredentialError) as no:
        client.call("agent.whoami")
    assert no.value.code == "identity.revoked"
    assert own_gateway.key not in repr(no.value) + str(no.value) + repr(client) + repr(client.settings)
    thread.join(40)
    assert isinstance(failed[0], CredentialError)


def test_the_asynchronous_client_does_the_same(gateway, async_client):
    async def walk() -> None:
        async with async_client as client:
            held = await client.call("alerts.send", {"message": f"async {unique()}"})
            assert (await held.cancel()).status == "cancelled"
            name = unique()
            await (await client.state.persistent.set(key=name, value=1)).wait(20)
            assert (await client.state.persistent.get(key=name)).result["value"] == 1
            async with client.session(client="suite") as inside:
                await (await inside.call("state.session.set", {"key": "k", "value": 1})).wait(20)
                assert (await inside.call("state.session.get", {"key": "k"})).result["value"] == 1
            with pytest.raises(BlockedError):
                await client.call("git.push", {"path": "x"})
            (gateway.folder / "workspace" / f"{name}.txt").write_text("x")
            parked = await client.call("filesystem.delete", {"path": f"{name}.txt"})
            gateway.decide("deny", parked.view.approval_id)
            with pytest.raises(DeniedError):
                await parked.wait(20)
            assert len(await client.capabilities()) > 40

    asyncio.run(walk())


def test_calls_in_parallel_are_decided_one_by_one_and_keep_their_order(gateway, async_client):
    async def walk() -> list[str]:
        async with async_client as client:

            async def one(capability: str, arguments: dict[str, Any]) -> str:
                try:
                    return (await (await client.call(capability, arguments)).wait(20)).status
                except BlockedError as error:
                    return error.code

            name = unique()
            return await asyncio.gather(
                one("state.persistent.set", {"key": name, "value": 1}),
                one("git.push", {"path": "x"}),
                one("state.persistent.set", {"key": name + "b", "value": 2}),
                one("agent.whoami", {}),
            )

    assert asyncio.run(walk()) == ["done", "policy.blocked", "done", "done"]


def test_both_clients_have_the_same_names():
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert names(SluiceClient) == names(AsyncSluiceClient)
