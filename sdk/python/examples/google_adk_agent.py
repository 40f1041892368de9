"""Google ADK: a tool asks the gateway when it runs, and waits for a person if one has to decide."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext

from sluicegate import AsyncSluiceClient, SluiceError


def build(client: AsyncSluiceClient, model: Any, pay_order: Callable[[str, int], Awaitable[str]]) -> LlmAgent:
    """The session and the id of a tool call name one operation, which runs once."""

    async def pay(order: str, cents: int, tool_context: ToolContext) -> dict[str, str]:
        """Pays an order."""
        operation = f"{tool_context.session.id}:{tool_context.function_call_id}"
        try:
            text = await client.run_gated(
                "ask_pay",
                {"order": order, "cents": cents},
                lambda: pay_order(order, cents),
                operation=operation,
                on_approval="wait",
                deadline=600,
            )
        except SluiceError as error:
            return {"error": str(error)}
        return {"result": text}

    return LlmAgent(name="payer", model=model, instruction="Pay what the user asks for.", tools=[pay])
