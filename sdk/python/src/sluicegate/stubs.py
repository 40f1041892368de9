"""Writes typed clients for the capabilities of a live gateway: `sluicegate-stubs my_gateway`.

Makes `my_gateway.py` and `my_gateway.pyi`. Editors then complete `GatewayClient().email.send(to=…)` and check its
arguments; what runs is the ordinary client.
"""

from __future__ import annotations

import argparse
import keyword
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from .client import SluiceClient
from .errors import SluiceError

_MODULE = '''"""Clients of a gateway, typed by the stub beside this file. Written by sluicegate-stubs."""

from sluicegate import AsyncSluiceClient as AsyncGatewayClient
from sluicegate import SluiceClient as GatewayClient

__all__ = ["AsyncGatewayClient", "GatewayClient"]
'''


def stub_type(schema: Mapping[str, Any]) -> str:
    """The type of an argument."""
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " | ".join(dict.fromkeys(stub_type(choice) for choice in choices))
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    named = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    found: list[str] = []
    for kind in cast("list[str]", kinds):
        if kind == "array":
            found.append(f"Sequence[{stub_type(schema.get('items', {}))}]")
        elif kind == "object":
            found.append("Mapping[str, Any]")
        else:
            found.append(named.get(kind, "Any"))
    return " | ".join(found) or "Any"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and not text.startswith("_")


def _method(name: str, capability: Mapping[str, Any], *, is_async: bool) -> list[str]:
    schema = capability.get("input_schema", {})
    required = set(schema.get("required", []))
    arguments = {key: value for key, value in schema.get("properties", {}).items() if _is_name(key)}
    if required - arguments.keys():
        return []
    parts = [f"{key}: {stub_type(value)}" for key, value in arguments.items() if key in required]
    parts += [f"{key}: {stub_type(value)} = ..." for key, value in arguments.items() if key not in required]
    handle = "AsyncCallHandle" if is_async else "CallHandle"
    listed = ", ".join(["self", *(["*", *parts] if parts else [])])
    summary = str(capability.get("summary", "")).replace("\\", "\\\\").replace('"""', "'''")
    return [f"    {'async ' if is_async else ''}def {name}({listed}) -> {handle}:", f'        """{summary}"""']


def _groups(capabilities: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], dict[str, Mapping[str, Any] | None]]:
    """Members of each group of names: a capability, or `None` for a group of its own."""
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Any] | None]] = {(): {}}
    for capability in capabilities:
        parts = str(capability.get("name", "")).split(".")
        if not all(_is_name(part) for part in parts):
            continue
        for depth in range(len(parts) - 1):
            groups.setdefault(tuple(parts[:depth]), {}).setdefault(parts[depth], None)
        groups.setdefault(tuple(parts[:-1]), {})[parts[-1]] = capability
    return groups


def stub_text(capabilities: Iterable[Mapping[str, Any]]) -> str:
    """The text of the `.pyi` file."""
    listed = list(capabilities)
    out = [
        "# Written by sluicegate-stubs: do not edit.",
        "from collections.abc import Mapping, Sequence",
        "from typing import Any, Literal",
        "",
        "from sluicegate import AsyncCallHandle, AsyncSluiceClient, CallHandle, SluiceClient",
    ]
    for prefix, base in (("", "SluiceClient"), ("Async", "AsyncSluiceClient")):
        groups = _groups(listed)

        def class_name(path: tuple[str, ...], prefix: str = prefix) -> str:
            words = "".join(word.capitalize() for part in path for word in part.split("_"))
            return f"{prefix}{words}Capabilities" if path else f"{prefix}GatewayClient"

        for path in sorted(groups, key=lambda path: (-len(path), path)):
            body: list[str] = []
            for name, capability in sorted(groups[path].items()):
                if capability is None or (*path, name) in groups:
                    body += ["    @property", f"    def {name}(self) -> {class_name((*path, name))}: ..."]
                elif path:
                    body += _method(name, capability, is_async=bool(prefix))
            out += ["", f"class {class_name(path)}({base}):" if not path else f"class {class_name(path)}:"]
            out += body or ["    ..."]
    return "\n".join(out) + "\n"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sluicegate-stubs", description=__doc__)
    parser.add_argument("module", help="name of the module, with a folder if needed: src/my_gateway")
    parser.add_argument("--url", help="address of the gateway; otherwise SLUICE_URL")
    parser.add_argument("--key-file", help="file of the agent key; otherwise SLUICE_AGENT_KEY_FILE")
    asked = parser.parse_args(words)
    module = Path(asked.module)
    if not _is_name(module.name):
        parser.error(f"`{module.name}` is not the name of a module")
    try:
        with SluiceClient(asked.url, key_file=asked.key_file) as client:
            capabilities = client.capabilities()
    except SluiceError as error:
        print(f"no stubs were written: {error}", file=sys.stderr)
        return 1
    module.with_name(f"{module.name}.pyi").write_text(stub_text(capabilities))
    module.with_name(f"{module.name}.py").write_text(_MODULE)
    print(f"{len(capabilities)} capabilities: {module}.py, {module}.pyi")
    return 0


if __name__ == "__main__":
    sys.exit(main())
