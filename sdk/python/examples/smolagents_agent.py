"""smolagents: each tool asks the gateway when it runs, and waits for a person if one has to decide."""

from typing import Any

from smolagents import Tool, ToolCallingAgent

from sluicegate import SluiceClient, SluiceError


def gated(client: SluiceClient, tool: Tool) -> Tool:
    """Gates a tool under its own name. A refusal is what the model gets in place of a result."""
    forward = tool.forward

    def ask(*values: Any, **named: Any) -> Any:
        arguments = dict(zip(tool.inputs, values, strict=False)) | named
        try:
            return client.run_gated(
                tool.name, arguments, lambda: forward(**arguments), on_approval="wait", deadline=600
            )
        except SluiceError as error:
            return str(error)

    tool.forward = ask
    return tool


def build(client: SluiceClient, model: Any, tools: list[Tool]) -> ToolCallingAgent:
    return ToolCallingAgent(tools=[gated(client, tool) for tool in tools], model=model)
