"""Microsoft Agent Framework: middleware asks the gateway about every function call, and waits for a person."""

from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import Agent, FunctionInvocationContext

from sluicegate import AsyncSluiceClient, SluiceError


def gate_functions(client: AsyncSluiceClient):
    """For functions that return text. A refusal is what the model gets in place of a result."""

    async def gate(context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await call_next()

        given = context.arguments
        arguments = given if isinstance(given, dict) else given.model_dump()
        try:
            # The result of the framework is its own object: the function reports outside text by itself.
            await client.run_gated(
                context.function.name, arguments, run, on_approval="wait", deadline=600, report=False
            )
        except SluiceError as error:
            context.result = str(error)

    return gate


def build(client: AsyncSluiceClient, chat_client: Any, tools: list[Any]) -> Agent:
    return Agent(chat_client, tools=tools, middleware=[gate_functions(client)])
