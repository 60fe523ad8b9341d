"""Checks the signatures of webhooks, by Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence

from changefeed._errors import ChangefeedError, Seconds, seconds_of

__all__ = ["SignatureError", "Webhook", "verify_webhook"]

_PREFIX = "whsec_"


class SignatureError(ChangefeedError):
    """The signature of a webhook is wrong, missing or too old."""

    def __init__(self, error: str) -> None:
        super().__init__(error, code="signature")


@dataclasses.dataclass(frozen=True)
class Webhook:
    """A request whose signature is right."""

    id: str
    time: datetime.datetime
    body: bytes


def verify_webhook(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    raw_body: bytes,
    *,
    tolerance: Seconds = 300.0,
) -> Webhook:
    """Checks the signature of a request that `changefeed run -- URL` or a webhook publisher has sent.

    Give it the body as it has come, before any parser. With several secrets, one has to fit: so a secret can be
    replaced. Raises SignatureError.
    """
    names = {name.lower(): value for name, value in headers.items()}
    found = [names.get("webhook-" + name, "") for name in ("id", "timestamp", "signature")]
    if not all(found):
        raise SignatureError("a header is missing: want webhook-id, webhook-timestamp and webhook-signature")
    number, stamp, signatures = found
    if not re.fullmatch(r"[0-9]{1,12}", stamp):
        raise SignatureError(f"the header webhook-timestamp is {stamp!r}: want seconds")
    sent = datetime.datetime.fromtimestamp(min(int(stamp), 253402300799), datetime.timezone.utc)
    if abs(time.time() - int(stamp)) > seconds_of(tolerance):
        raise SignatureError(f"the webhook is of {sent.isoformat()}: too far from the clock here")
    given = [text[3:].encode() for text in signatures.split(" ") if text.startswith("v1,")]
    right = False
    for one in [secret] if isinstance(secret, str) else secret:
        mac = hmac.new(_key(one), f"{number}.{stamp}.".encode() + raw_body, hashlib.sha256).digest()
        expected = base64.b64encode(mac)
        for signature in given:
            right = hmac.compare_digest(signature, expected) or right
    if not right:
        raise SignatureError("no signature of the webhook is right")
    return Webhook(number, sent, raw_body)


def _key(secret: str) -> bytes:
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError("the secret of a webhook is no base64: want it as openssl rand -base64 32 makes it")
    return key
