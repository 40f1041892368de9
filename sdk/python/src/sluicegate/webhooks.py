"""Verifies signed webhooks (Standard Webhooks, symmetric signatures `v1`).

Promise: a body is trusted only with a signature of the secret over exactly these bytes and a fresh timestamp.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping


class WebhookError(Exception):
    """The request is not one of the owner of the secret, or too old. The text has nothing of the body."""


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Iterable[str],
    *,
    tolerance: float = 300.0,
    now: float | None = None,
) -> str:
    """Checks signature and time of a webhook, and gives its id. `secrets` are several while a secret is rotated."""
    found = {name.lower(): value for name, value in headers.items()}
    message, stamp = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    if not message or not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise WebhookError("the headers webhook-id and webhook-timestamp are missing or malformed")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise WebhookError("the timestamp is too far from the present time")
    signed = f"{message}.{stamp}.".encode() + body
    given = [part[3:] for part in found.get("webhook-signature", "").split(" ") if part.startswith("v1,")]
    is_valid = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError):
            raise WebhookError("the secret is not `whsec_` with base64") from None
        if not key:
            raise WebhookError("the secret is empty")
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for signature in given:
            is_valid |= hmac.compare_digest(signature.encode(), expected.encode())
    if not is_valid:
        raise WebhookError("no signature fits")
    return message
