"""The proxy of FastMCP before a server, for measurements.

Takes the server's address as its one word; prints where it listens, twice, and ends with its standard input.
"""

import asyncio
import os
import socket
import sys
import threading

from fastmcp.server import create_proxy


def until_closed() -> None:
    sys.stdin.read()
    os._exit(0)


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
host, port = listener.getsockname()
threading.Thread(target=until_closed, daemon=True).start()
print(f"{host}:{port} {host}:{port}", flush=True)
proxy = create_proxy(sys.argv[1])
serving = proxy.run_http_async(
    show_banner=False, log_level="critical", path="/mcp", json_response=True, stateless_http=True, sockets=[listener]
)
asyncio.run(serving)
