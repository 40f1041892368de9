"""The official Python client (PyPI mcp) against the gate, in both eras of the protocol.

Takes SLUICE_TEST_URL, SLUICE_TEST_KEY and SLUICE_TEST_FOLDER (a folder opened to the agent, with notes.txt in it);
ends with 0 if every line below holds.
"""
import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL, KEY, FOLDER = (os.environ["SLUICE_TEST_" + name] for name in ("URL", "KEY", "FOLDER"))


async def walk(mode: str) -> None:
    headers = {"Authorization": "Bearer " + KEY}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(URL + "/mcp", http_client=http), mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "filesystem_read" in tools and "sluice_cancel" in tools, sorted(tools)
            assert tools["filesystem_read"].annotations.read_only_hint is True
            read = await client.call_tool("filesystem_read", {"path": FOLDER + "/notes.txt"})
            assert not read.is_error and read.structured_content["result"]["content"] == "milk\n", read
            refused = await client.call_tool("filesystem_read", {"path": "/etc/passwd"})
            assert refused.is_error and "What to do" in refused.content[0].text, refused
            write = {"path": f"{FOLDER}/{mode}.txt", "content": "x"}
            held = await client.call_tool("filesystem_write", write)
            assert held.structured_content["status"] == "held", held
            call = held.structured_content["call_id"]
            again = await client.call_tool("filesystem_write", write)
            assert again.structured_content["code"] == "call.possible_duplicate", again
            stopped = await client.call_tool("sluice_cancel", {"call_id": call})
            assert stopped.structured_content["status"] == "cancelled", stopped
            status = await client.call_tool("sluice_status", {"call_id": call})
            assert status.structured_content["status"] == "cancelled", status
            who = await client.call_tool("sluice_whoami", {})
            assert who.structured_content["agent"] == "clerk", who
            print("mcp", mode, len(tools), "tools")


for mode in ("legacy", "auto"):
    asyncio.run(walk(mode))
