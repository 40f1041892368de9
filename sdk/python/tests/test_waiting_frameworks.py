"""Examples of frameworks without a checkpoint that this package could use: a tool waits for the decision."""

from __future__ import annotations

import asyncio
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_gateway import RealGateway

from sluicegate import AsyncSluiceClient, SluiceClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))


@pytest.fixture(scope="module")
def waiting_gateway() -> Iterator[RealGateway]:
    running = RealGateway()
    yield running
    running.close()


class PaidOrders:
    """The effects, and the order that the scripted model pays."""

    def __init__(self) -> None:
        self.order = uuid.uuid4().hex
        self.paid: list[str] = []

    def pay(self, order: str, cents: int) -> str:
        self.paid.append(order)
        return f"paid {cents} for {order}"

    async def pay_later(self, order: str, cents: int) -> str:
        return self.pay(order, cents)


def run_google_adk(gateway: RealGateway, orders: PaidOrders) -> str:
    pytest.importorskip("google.adk")
    import google_adk_agent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    class ScriptedModel(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            answer = llm_request.contents[-1].parts[-1].function_response
            if answer is not None:
                part = types.Part(text=f"told: {answer.response}")
            else:
                given = {"order": orders.order, "cents": 5}
                part = types.Part(function_call=types.FunctionCall(name="pay", args=given))
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    async def walk() -> str:
        async with AsyncSluiceClient(gateway.url, key=gateway.key) as client:
            agent = google_adk_agent.build(client, ScriptedModel(model="scripted"), orders.pay_later)
            runner = InMemoryRunner(agent)
            events = await runner.run_debug("pay", session_id=orders.order, quiet=True)
            return events[-1].content.parts[-1].text

    return asyncio.run(walk())


def run_smolagents(gateway: RealGateway, orders: PaidOrders) -> str:
    pytest.importorskip("smolagents")
    import smolagents_agent
    from smolagents import Model, Tool
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction

    class AskPay(Tool):
        name = "ask_pay"
        description = "Pays an order."
        inputs = {  # noqa: RUF012
            "order": {"type": "string", "description": "The order."},
            "cents": {"type": "integer", "description": "How much."},
        }
        output_type = "string"

        def forward(self, order: str, cents: int) -> str:
            return orders.pay(order, cents)

    class ScriptedModel(Model):
        turns = 0

        def generate(self, messages: Any, **_: Any) -> ChatMessage:
            self.turns += 1
            name, given = "ask_pay", {"order": orders.order, "cents": 5}
            if self.turns > 1:
                told = messages[-1].content
                text = told if isinstance(told, str) else " ".join(part.get("text", "") for part in told)
                name, given = "final_answer", {"answer": f"told: {text}"}
            call = ChatMessageToolCall(
                ChatMessageToolCallFunction(name=name, arguments=given), f"c{self.turns}", "function"
            )
            return ChatMessage(role="assistant", content="", tool_calls=[call])

    with SluiceClient(gateway.url, key=gateway.key) as client:
        return str(smolagents_agent.build(client, ScriptedModel(), [AskPay()]).run("pay"))


def run_agent_framework(gateway: RealGateway, orders: PaidOrders) -> str:
    pytest.importorskip("agent_framework")
    import agent_framework_agent
    from agent_framework import BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

    class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
        def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
            async def answer() -> ChatResponse:
                last = messages[-1].contents[-1]
                if last.type == "function_result":
                    content = Content.from_text(f"told: {last.result}")
                else:
                    given = {"order": orders.order, "cents": 5}
                    content = Content.from_function_call("call_1", "ask_pay", arguments=given)
                return ChatResponse(messages=[Message("assistant", [content])])

            return answer()

    @tool(name="ask_pay", description="Pays an order.", approval_mode="never_require")
    def ask_pay(order: str, cents: int) -> str:
        return orders.pay(order, cents)

    async def walk() -> str:
        async with AsyncSluiceClient(gateway.url, key=gateway.key) as client:
            agent = agent_framework_agent.build(client, ScriptedClient(), [ask_pay])
            return (await agent.run("pay")).text

    return asyncio.run(walk())


FRAMEWORKS = {"google_adk": run_google_adk, "smolagents": run_smolagents, "agent_framework": run_agent_framework}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_tool_call_waits_for_the_decision_of_a_person(waiting_gateway, framework, decision):
    orders = PaidOrders()
    told: list[str] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            told.append(FRAMEWORKS[framework](waiting_gateway, orders))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive() and not waiting_gateway.pending():
        thread.join(0.05)
    assert orders.paid == []
    waiting_gateway.decide(decision, note="not on Friday" if decision == "deny" else None)
    thread.join(60)
    if failed:
        raise failed[0]
    if decision == "approve":
        assert orders.paid == [orders.order]
        assert "paid 5" in told[0]
    else:
        assert orders.paid == []
        assert "not on Friday" in told[0]
