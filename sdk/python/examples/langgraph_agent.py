"""LangGraph: the gateway decides about every tool call. A call that needs a person interrupts the graph."""

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain.messages import ToolMessage
from langgraph.types import Command, interrupt

from sluicegate import ParkedCallError, SluiceClient, SluiceError


def gate_tools(client: SluiceClient):
    """Middleware for tools that return text. The value that resumes an interrupt decides nothing."""

    @wrap_tool_call
    def gate(request, handler):
        call = request.tool_call
        key = f"{request.runtime.config['configurable']['thread_id']}:{call['id']}"
        while True:
            try:
                text = client.run_gated(call["name"], call["args"], lambda: handler(request).content, operation=key)
                return ToolMessage(text, name=call["name"], tool_call_id=call["id"])
            except ParkedCallError as parked:
                interrupt({"call_id": parked.call_id, "approval_id": parked.approval_id})
            except SluiceError as error:
                return ToolMessage(str(error), name=call["name"], tool_call_id=call["id"], status="error")

    return gate


def run(agent, thread: str, task: str | None = None):
    """Begins a run, or goes on with one that was interrupted or died."""
    config = {"configurable": {"thread_id": thread}}
    waiting = {one.id: None for one in agent.get_state(config).interrupts}
    given = {"messages": [("user", task)]} if task else Command(resume=waiting) if waiting else None
    return agent.invoke(given, config)


def build(client: SluiceClient, model, tools, checkpointer):
    return create_agent(model, tools, middleware=[gate_tools(client)], checkpointer=checkpointer)
