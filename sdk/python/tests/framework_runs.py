"""One run of an example with a scripted model, as a process that can die: see `test_frameworks.py`.

Words: framework, folder, how it dies (`never`, `in_tool`, `late`), the order. Prints the state after the run as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from sluicegate import AsyncSluiceClient, SluiceClient

FRAMEWORK, FOLDER, DIES, ORDER = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
EFFECTS, SAVED = FOLDER / "effects", FOLDER / "saved"
THREAD = f"thread-{ORDER}"


def effect(order: str, cents: int) -> str:
    with EFFECTS.open("a") as effects:
        effects.write("x")
    if DIES == "in_tool":
        os._exit(9)
    return f"paid {cents} for {order}"


async def async_effect(order: str, cents: int) -> str:
    return effect(order, cents)


def told(status: str, text: object) -> None:
    if DIES == "late" and EFFECTS.exists():
        # The effect happened, and the framework has not stored anything yet.
        os._exit(9)
    print(json.dumps({"status": status, "text": str(text)}))


def langgraph() -> None:
    import langgraph_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver

    class ScriptedModel(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            if isinstance(messages[-1], ToolMessage):
                return ChatResult(generations=[ChatGeneration(message=AIMessage(f"told: {messages[-1].content}"))])
            call = {"name": "ask_pay", "args": {"order": ORDER, "cents": 5}, "id": "call_1"}
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])

    @tool
    def ask_pay(order: str, cents: int) -> str:
        """Pays an order."""
        return effect(order, cents)

    class DyingSaver(SqliteSaver):
        def put_writes(self, *args: Any, **kwargs: Any) -> None:
            if DIES == "late" and EFFECTS.exists():
                os._exit(9)
            super().put_writes(*args, **kwargs)

    import sqlite3

    saver = DyingSaver(sqlite3.connect(FOLDER / "checkpoints.db", check_same_thread=False))
    agent = langgraph_agent.build(SluiceClient(), ScriptedModel(), [ask_pay], saver)
    begun = agent.get_state({"configurable": {"thread_id": THREAD}}).created_at is not None
    state = langgraph_agent.run(agent, THREAD, None if begun else "pay")
    waits = state.get("__interrupt__")
    told("waits" if waits else "done", "" if waits else state["messages"][-1].content)


async def openai_agents() -> None:
    import openai_agents_agent
    from agents import ModelResponse, Usage, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class ScriptedModel(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
            last = input[-1] if isinstance(input, list) else {}
            if isinstance(last, dict) and last.get("type") == "function_call_output":
                text = ResponseOutputText(text=f"told: {last['output']}", type="output_text", annotations=[])
                item: Any = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                given = json.dumps({"order": ORDER, "cents": 5})
                item = ResponseFunctionToolCall(call_id="call_1", name="pay", arguments=given, type="function_call")
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    async with AsyncSluiceClient() as client:
        agent = openai_agents_agent.build(client, ScriptedModel(), async_effect)
        saved = SAVED.read_text() if SAVED.exists() else None
        result = await openai_agents_agent.run(agent, THREAD, "pay", saved)
    if result.interruptions:
        SAVED.write_text(result.to_state().to_string())
        return told("waits", "")
    return told("done", result.final_output)


async def pydantic_ai() -> None:
    import pydantic_ai_agent
    from pydantic_ai import DeferredToolRequests
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    def scripted(messages: Any, _: Any) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"told: {last.content}")])
        return ModelResponse(parts=[ToolCallPart("pay", {"order": ORDER, "cents": 5}, tool_call_id="call_1")])

    async with AsyncSluiceClient() as client:
        agent = pydantic_ai_agent.build(client, FunctionModel(scripted), async_effect)
        saved = SAVED.read_bytes() if SAVED.exists() else None
        result = await pydantic_ai_agent.run(agent, THREAD, "pay", saved)
    if isinstance(result.output, DeferredToolRequests):
        SAVED.write_bytes(result.all_messages_json())
        return told("waits", "")
    return told("done", result.output)


if __name__ == "__main__":
    runs = {"langgraph": langgraph, "openai_agents": openai_agents, "pydantic_ai": pydantic_ai}[FRAMEWORK]()
    if runs is not None:
        asyncio.run(runs)
