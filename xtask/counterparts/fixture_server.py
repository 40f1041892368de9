"""A small MCP server: mounted as `test`, its tools have the names that conformance scenarios call.

Speaks over standard input and output, with the standard library alone.
"""

import json
import sys

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
NOTHING = {"type": "object", "properties": {}}
TOOLS = {
    "simple_text": (NOTHING, [{"type": "text", "text": "This is a simple text response for testing."}], False),
    "image_content": (NOTHING, [{"type": "image", "data": PICTURE, "mimeType": "image/png"}], False),
    "error_handling": (NOTHING, [{"type": "text", "text": "This tool intentionally returns an error."}], True),
}


def answer(method, params):
    if method == "initialize":
        about = {"name": "fixture", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        listed = [
            {"name": name, "description": "A fixture.", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
            for name, (schema, _, _) in TOOLS.items()
        ]
        return {"tools": listed}
    if method == "tools/call":
        _, content, failed = TOOLS[params["name"]]
        return {"content": content, "isError": failed}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
