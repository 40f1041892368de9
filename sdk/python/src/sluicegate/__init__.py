"""Client of a Sluicegate gateway.

    from sluicegate import SluiceClient

    client = SluiceClient()                       # SLUICE_URL, SLUICE_AGENT_KEY_FILE
    call = client.call("email.send", {"to": ["li@example.org"], "subject": "Q3", "body": "…"})
    call.wait(600).result

Modules are loaded when they are first used, so that importing the package costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .aio import AsyncCallHandle, AsyncSessionHandle, AsyncSluiceClient
    from .client import CallHandle, SessionHandle, SluiceClient
    from .errors import (
        AlreadyFinishedError,
        ApprovalRequiredError,
        BlockedError,
        ConflictError,
        ContentWithheldError,
        CredentialError,
        DeniedError,
        ExpiredError,
        FrozenError,
        InvalidCallError,
        LeakFoundError,
        NotDoneError,
        NotFoundError,
        OutcomeUnknownError,
        ParkedCallError,
        RateLimitedError,
        ReportError,
        ResponseError,
        SluiceError,
        UnavailableError,
        WaitTimeoutError,
    )
    from .events import GatewayEvent
    from .ledger import FileLedger, GatewayLedger
    from .testing import FakeGateway
    from .webhooks import WebhookError, verify_webhook

__version__ = "0.1.0"

_WHERE = {
    "aio": ("AsyncCallHandle", "AsyncSessionHandle", "AsyncSluiceClient"),
    "client": ("CallHandle", "SessionHandle", "SluiceClient"),
    "errors": (
        "AlreadyFinishedError",
        "ApprovalRequiredError",
        "BlockedError",
        "ConflictError",
        "ContentWithheldError",
        "CredentialError",
        "DeniedError",
        "ExpiredError",
        "FrozenError",
        "InvalidCallError",
        "LeakFoundError",
        "NotDoneError",
        "NotFoundError",
        "OutcomeUnknownError",
        "ParkedCallError",
        "RateLimitedError",
        "ReportError",
        "ResponseError",
        "SluiceError",
        "UnavailableError",
        "WaitTimeoutError",
    ),
    "events": ("GatewayEvent",),
    "ledger": ("FileLedger", "GatewayLedger"),
    "testing": ("FakeGateway",),
    "webhooks": ("WebhookError", "verify_webhook"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "AlreadyFinishedError",
    "ApprovalRequiredError",
    "AsyncCallHandle",
    "AsyncSessionHandle",
    "AsyncSluiceClient",
    "BlockedError",
    "CallHandle",
    "ConflictError",
    "ContentWithheldError",
    "CredentialError",
    "DeniedError",
    "ExpiredError",
    "FakeGateway",
    "FileLedger",
    "FrozenError",
    "GatewayEvent",
    "GatewayLedger",
    "InvalidCallError",
    "LeakFoundError",
    "NotDoneError",
    "NotFoundError",
    "OutcomeUnknownError",
    "ParkedCallError",
    "RateLimitedError",
    "ReportError",
    "ResponseError",
    "SessionHandle",
    "SluiceClient",
    "SluiceError",
    "UnavailableError",
    "WaitTimeoutError",
    "WebhookError",
    "verify_webhook",
]


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{module}", __name__), name)
