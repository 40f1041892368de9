"""The types of the API, loaded when the first one is used: they need msgspec, which an import alone does not."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    value = getattr(import_module("._schema", __package__), name)
    globals()[name] = value
    return value
