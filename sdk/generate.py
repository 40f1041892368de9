"""Writes the types of both SDKs from `docs/openapi.json` and `docs/errors.md`.

`python3 sdk/generate.py` writes them; with `--check` it only compares, and fails if a file is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VIEWS = [
    "ProblemDetails",
    "RetryView",
    "LastErrorView",
    "ReadTraceView",
    "CallView",
    "HoldView",
    "TargetView",
    "SessionView",
    "ObservationView",
    "GateDecisionView",
    "GateReceiptView",
    "GateRequestView",
]
BODIES = ["CallMode", "CallOptions", "NewSessionBody", "SessionPromptBody", "ObservationBody", "GateTarget", "GateRequestBody"]


class TypeWriter:
    """Turns schemas into the types of one language."""

    def __init__(self, language: str) -> None:
        self.python = language == "python"

    def name(self, schema: dict) -> str:
        """The type of a schema."""
        if "$ref" in schema:
            return schema["$ref"].rsplit("/", 1)[1]
        if "const" in schema:
            return f'Literal["{schema["const"]}"]' if self.python else f'"{schema["const"]}"'
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return " | ".join(dict.fromkeys(self.name(choice) for choice in choices))
        kinds = schema.get("type")
        if kinds is None:
            return "Any" if self.python else "unknown"
        if isinstance(kinds, str):
            kinds = [kinds]
        return " | ".join(self.plain(kind, schema) for kind in kinds)

    def plain(self, kind: str, schema: dict) -> str:
        """The type of a schema that has one kind."""
        if kind == "array":
            item = self.name(schema.get("items", {}))
            return f"list[{item}]" if self.python else f"{f'({item})' if ' ' in item else item}[]"
        if kind == "object":
            return "dict[str, Any]" if self.python else "Record<string, unknown>"
        words = {
            "string": ("str", "string"),
            "integer": ("int", "number"),
            "number": ("float", "number"),
            "boolean": ("bool", "boolean"),
            "null": ("None", "null"),
        }
        return words[kind][0 if self.python else 1]


def one_line(text: str) -> str:
    return " ".join(text.split())


def python_doc(text: str, indent: str) -> list[str]:
    """A comment above a field, in lines of at most 120 characters."""
    lines, line = [], ""
    for word in one_line(text).split():
        if len(indent) + 2 + len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [f"{indent}# {part}" for part in [*lines, line]]


def python_types(schemas: dict) -> str:
    writer = TypeWriter("python")
    out = [
        '"""Types of the API. Written by `sdk/generate.py` from `docs/openapi.json`: do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any, Literal, TypedDict",
        "",
        "import msgspec",
        "",
    ]
    for name in VIEWS:
        schema = schemas[name]
        required = set(schema.get("required", []))
        out += ["", f"class {name}(msgspec.Struct, frozen=True, kw_only=True):"]
        out += [f'    """{one_line(schema["description"])}"""', ""]
        for field, shape in sorted(schema["properties"].items(), key=lambda item: (item[0] not in required, item[0])):
            kind = writer.name(shape)
            if field not in required and kind != "Any" and "None" not in kind:
                kind += " | None"
            out += python_doc(shape.get("description", name), "    ")
            out.append(f"    {field}: {kind}{'' if field in required else ' = None'}")
        out.append("")
    for name in BODIES:
        schema = schemas[name]
        if "properties" not in schema:
            out += ["", f"# {one_line(schema['description'])}", f"{name} = {writer.name(schema)}", ""]
            continue
        required = set(schema.get("required", []))
        for suffix, total in (("Required", True), ("", False)):
            fields = {k: v for k, v in schema["properties"].items() if (k in required) == total}
            base = "TypedDict" if total else f"{name}Required, total=False"
            out += ["", f"class {name}{suffix}({base}):", f'    """{one_line(schema["description"])}"""', ""]
            for field, shape in sorted(fields.items()):
                out += [*python_doc(shape.get("description", name), "    "), f"    {field}: {writer.name(shape)}"]
            out.append("")
    return "\n".join(out).rstrip() + "\n"


def typescript_types(schemas: dict, codes: list[tuple[str, str]]) -> str:
    writer = TypeWriter("typescript")
    out = ["// Types of the API. Written by `sdk/generate.py` from `docs/openapi.json` and `docs/errors.md`: do not edit.", ""]
    for name in [*VIEWS, *BODIES]:
        schema = schemas[name]
        out.append(f"/** {one_line(schema['description'])} */")
        if "properties" not in schema:
            out += [f"export type {name} = {writer.name(schema)};", ""]
            continue
        required = set(schema.get("required", []))
        out.append(f"export interface {name} {{")
        for field, shape in sorted(schema["properties"].items()):
            out.append(f"  /** {one_line(shape.get('description', name))} */")
            out.append(f"  {field}{'' if field in required else '?'}: {writer.name(shape)};")
        out += ["}", ""]
    out += ["/** A stable code of the gateway. */", "export type GatewayCode ="]
    out += [f'  | "{code}"' for code, _ in codes]
    out[-1] += ";"
    return "\n".join(out) + "\n"


def python_codes(codes: list[tuple[str, str]]) -> str:
    out = ['"""The codes of the gateway. Written by `sdk/generate.py` from `docs/errors.md`: do not edit."""', ""]
    out += ["from __future__ import annotations", "", "from typing import Literal", "", "GatewayCode = Literal["]
    out += [f'    "{code}",' for code, _ in codes]
    return "\n".join([*out, "]"]) + "\n"


def error_codes(page: str) -> list[tuple[str, str]]:
    """Each code of the page with its retry advice."""
    return re.findall(r"^\| `([a-z_]+\.[a-z_0-9]+)` \| \d+ \| (\w+)", page, re.M)


def main() -> int:
    description = json.loads((ROOT / "docs/openapi.json").read_text())
    schemas, codes = description["components"]["schemas"], error_codes((ROOT / "docs/errors.md").read_text())
    files = {
        "python/src/sluicegate/_schema.py": python_types(schemas),
        "python/src/sluicegate/_codes.py": python_codes(codes),
        "typescript/src/schema.ts": typescript_types(schemas, codes),
    }
    stale = []
    for path, text in files.items():
        file = ROOT / "sdk" / path
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.is_file() or file.read_text() != text:
            stale.append(path)
    versions = {
        "openapi.json": description["info"]["version"],
        "python": re.findall(r'^version = "(.+)"', (ROOT / "sdk/python/pyproject.toml").read_text(), re.M)[0],
        "typescript": json.loads((ROOT / "sdk/typescript/package.json").read_text())["version"],
    }
    if len(set(versions.values())) > 1:
        stale.append(f"versions differ: {versions}")
    for path in stale:
        print(f"out of date: {path}; run `python3 sdk/generate.py`")
    print(f"{len(VIEWS) + len(BODIES)} types and {len(codes)} codes compared with the description of the API")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
