"""Where the gateway is and which key is used: arguments first, then `SLUICE_…` variables.

Promise: a key is never part of a `repr`, a log line or an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ._flow import RetryPolicy
from .errors import CredentialError, InvalidCallError

OnApproval = Literal["wait", "park", "deny"]
_VERSION = "0.1.0"


class SecretText:
    """A text that is not printed."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "SecretText(…)"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Everything that a client is made with."""

    url: str
    key: SecretText | None
    task_key: SecretText | None = None
    session_id: str | None = None
    on_approval: OnApproval = "park"
    # How long `on_approval: wait` waits, in seconds. Without it, until the approval request expires.
    approval_deadline: float | None = None
    timeout: float = 10.0
    answer_limit: int = 64 * 1024 * 1024
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    verify: Any = True
    user_agent: str = f"sluicegate-python/{_VERSION}"

    def in_session(self, session_id: str | None) -> ClientSettings:
        return replace(self, session_id=session_id)


def find_key(
    key: str | None, key_file: str | os.PathLike[str] | None, variable: str, *, required: bool
) -> SecretText | None:
    """A key: the argument, the file, the variable, or the file that a variable names."""
    if key is None and key_file is None:
        key = os.environ.get(variable) or None
        key_file = os.environ.get(f"{variable}_FILE") or None if key is None else None
    if key is None and key_file is not None:
        try:
            key = Path(key_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            text = f"the key file cannot be read ({type(error).__name__})"
            raise CredentialError(text, code="client.no_key", hint="check path and permissions") from None
    if key is None:
        if required:
            raise CredentialError(
                "the client has no agent key",
                code="client.no_key",
                hint="set SLUICE_AGENT_KEY_FILE or key_file; make a key: sluice keys create --agent NAME --out FILE",
                retry="after_change",
            )
        return None
    if not key or not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise CredentialError("the key is not one of a gateway", code="client.no_key", hint="check the key file")
    return SecretText(key)


def find_url(url: str | None) -> str:
    """The address of the gateway."""
    url = url or os.environ.get("SLUICE_URL") or "http://127.0.0.1:7420"
    if not url.startswith(("http://", "https://")):
        raise InvalidCallError("the address has no scheme", code="client.url", hint="write http://… or https://…")
    return url.rstrip("/")
