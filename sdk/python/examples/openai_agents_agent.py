"""OpenAI Agents SDK: the gateway decides about a tool call, before it and again when it runs."""

from collections.abc import Awaitable, Callable

from agents import Agent, Runner, RunState, function_tool
from agents.tool_context import ToolContext

from sluicegate import AsyncSluiceClient, ParkedCallError, SluiceError


def build(client: AsyncSluiceClient, model, pay_order: Callable[[str, int], Awaitable[str]]) -> Agent[str]:
    """The context of a run is its name: with the id of a tool call it names one operation."""

    async def needs_person(context, arguments, call_id: str) -> bool:
        try:
            await client.check("custom:ask_pay", arguments, operation=f"{context.context}:{call_id}")
        except SluiceError as error:  # A refusal is told by the tool itself.
            return isinstance(error, ParkedCallError)
        return False

    @function_tool(needs_approval=needs_person)
    async def pay(context: ToolContext[str], order: str, cents: int) -> str:
        """Pays an order."""
        arguments, key = {"order": order, "cents": cents}, f"{context.context}:{context.tool_call_id}"
        try:
            return await client.run_gated("ask_pay", arguments, lambda: pay_order(order, cents), operation=key)
        except SluiceError as error:
            return str(error)

    return Agent(name="payer", model=model, tools=[pay])


async def run(agent: Agent[str], name: str, given: str | None = None, saved: str | None = None):
    """Begins a run, or goes on with a saved one. Approving here only lets the tool ask the gateway again."""
    if saved is None:
        return await Runner.run(agent, given or "", context=name)
    state = await RunState.from_string(agent, saved, context_override=name)
    for item in state.get_interruptions():
        state.approve(item)
    return await Runner.run(agent, state)
