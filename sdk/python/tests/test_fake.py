"""The offline gateway, and its fixtures in a test of a user."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate import BlockedError, DeniedError, FakeGateway, ParkedCallError, UnavailableError
from sluicegate._flow import RetryPolicy


def test_scripted_decisions_reach_the_client(fake_gateway: FakeGateway, sluice_client):
    fake_gateway.allow("email.search", [{"id": "m1"}]).hold("email.send").ask("custom:refund")
    assert sluice_client.email.search(query="x").result == [{"id": "m1"}]
    held = sluice_client.email.send(to=["a@example.org"])
    assert held.status == "held"
    assert held.cancel().status == "cancelled"
    with pytest.raises(BlockedError):
        sluice_client.call("git.push")
    assert [call.capability for call in fake_gateway.calls] == ["email.search", "email.send", "git.push"]


def test_a_gated_function_is_parked_approved_and_denied_offline(fake_gateway, sluice_client):
    fake_gateway.ask("custom:refund")
    refund = sluice_client.gate("refund")(lambda order: f"refunded {order}")
    with pytest.raises(ParkedCallError) as parked:
        refund("o1")
    fake_gateway.approve(parked.value.call_id)
    assert sluice_client.resume(refund, parked.value.parked, "o1") == "refunded o1"
    with pytest.raises(ParkedCallError) as parked:
        refund("o2")
    fake_gateway.deny(note="no")
    with pytest.raises(DeniedError, match="no"):
        sluice_client.resume(refund, parked.value.parked, "o2")


def test_faults_can_be_scripted(fake_gateway):
    fake_gateway.allow("email.search")
    fake_gateway.fail_next()
    assert fake_gateway.client().call("email.search").status == "done"
    fake_gateway.fail_next(503, "gateway.sandbox", "after_person")
    with pytest.raises(UnavailableError):
        fake_gateway.client(retries=RetryPolicy(attempts=1)).call("email.search")


def test_the_asynchronous_client_of_the_offline_gateway(fake_gateway, async_sluice_client):
    fake_gateway.allow("custom:*")

    @async_sluice_client.gate("add")
    async def add(a: int) -> int:
        return a + 1

    assert asyncio.run(add(1)) == 2


def test_the_fixtures_work_in_a_project_of_a_user(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        def test_agent(fake_gateway, sluice_client):
            fake_gateway.allow("email.search", [])
            assert sluice_client.email.search(query="x").result == []
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
