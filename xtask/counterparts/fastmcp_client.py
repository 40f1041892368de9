"""The FastMCP client (PyPI fastmcp) against the gate, over HTTP and over the stdio bridge.

Takes SLUICE_TEST_URL, SLUICE_TEST_KEY, SLUICE_TEST_KEY_FILE, SLUICE_TEST_FOLDER and SLUICE_TEST_PROGRAM.
"""
import asyncio
import os

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

URL, KEY, KEY_FILE, FOLDER, PROGRAM = (
    os.environ["SLUICE_TEST_" + name] for name in ("URL", "KEY", "KEY_FILE", "FOLDER", "PROGRAM")
)


async def walk(name: str, transport) -> None:
    async with Client(transport) as client:
        tools = await client.list_tools()
        assert any(tool.name == "system_time" for tool in tools)
        read = await client.call_tool("filesystem_read", {"path": FOLDER + "/notes.txt"})
        assert read.structured_content["result"]["content"] == "milk\n", read
        refused = await client.call_tool("filesystem_read", {"path": "/etc/passwd"}, raise_on_error=False)
        assert refused.is_error
        print("fastmcp", name, len(tools), "tools")


asyncio.run(walk("http", StreamableHttpTransport(URL + "/mcp", headers={"Authorization": "Bearer " + KEY})))
bridge = {"SLUICE_URL": URL, "SLUICE_AGENT_KEY_FILE": KEY_FILE}
asyncio.run(walk("stdio", StdioTransport(command=PROGRAM, args=["mcp"], env=bridge)))
