"""Pydantic AI: a tool call that needs a person is deferred. The gateway decides, also when it is resumed."""

from collections.abc import Awaitable, Callable

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter
from pydantic_ai import RunContext as Context

from sluicegate import AsyncSluiceClient, ParkedCallError, SluiceError


def build(client: AsyncSluiceClient, model, pay_order: Callable[[str, int], Awaitable[str]]):
    """`deps` is the name of the run: with the id of a tool call it names one operation."""
    agent = Agent(model, deps_type=str, output_type=[str, DeferredToolRequests])

    @agent.tool
    async def pay(context: Context[str], order: str, cents: int) -> str:
        """Pays an order."""
        arguments = {"order": order, "cents": cents}
        operation = f"{context.deps}:{context.tool_call_id}"
        try:
            return await client.run_gated("ask_pay", arguments, lambda: pay_order(order, cents), operation=operation)
        except ParkedCallError as parked:
            raise ApprovalRequired(metadata={"call_id": parked.call_id}) from None
        except SluiceError as error:
            return str(error)

    return agent


async def run(agent, name: str, task: str | None = None, saved: bytes | None = None):
    """Begins a run, or goes on with saved messages. `True` only lets the tool ask the gateway again."""
    if saved is None:
        return await agent.run(task, deps=name)
    messages = ModelMessagesTypeAdapter.validate_json(saved)
    calls = [part for part in messages[-1].parts if part.part_kind == "tool-call"]
    approvals = DeferredToolResults(approvals={call.tool_call_id: True for call in calls})
    return await agent.run(message_history=messages, deferred_tool_results=approvals, deps=name)
