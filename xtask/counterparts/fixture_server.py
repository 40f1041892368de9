"""A small MCP server: mounted as `test`, its tools have the names that conformance scenarios call.

Speaks over standard input and output, with the standard library alone.
"""

import json
import sys

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
NOTHING = {"type": "object", "properties": {}}
IMAGE = {"type": "image", "data": PICTURE, "mimeType": "image/png"}


def resource(uri, kind, text):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


TOOLS = {
    "simple_text": (NOTHING, [{"type": "text", "text": "This is a simple text response for testing."}], False),
    "image_content": (NOTHING, [IMAGE], False),
    "audio_content": (NOTHING, [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}], False),
    "embedded_resource": (NOTHING, [resource("test://embedded-resource", "text/plain", "An embedded resource.")], False),
    "multiple_content_types": (
        NOTHING,
        [
            {"type": "text", "text": "Multiple content types test:"},
            IMAGE,
            resource("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
        ],
        False,
    ),
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
