"""A small MCP server whose tools have the names that conformance scenarios call.

Takes the name it is mounted under, which comes before the names of its tools, as its one word. Speaks over standard input and
output, with the standard library alone.
"""

import json
import sys

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}}
TOOLS = {
    "test": {
        "simple_text": (NOTHING, [{"type": "text", "text": "This is a simple text response for testing."}], False),
        "image_content": (NOTHING, [{"type": "image", "data": PICTURE, "mimeType": "image/png"}], False),
        "error_handling": (NOTHING, [{"type": "text", "text": "This tool intentionally returns an error."}], True),
    },
    "json": {"schema_2020_12_tool": (SCHEMA, [{"type": "text", "text": "ok"}], False)},
}[sys.argv[1]]


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
