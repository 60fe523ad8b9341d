"""The credential of this process, and the signatures of webhooks."""

from __future__ import annotations

import base64
import json
import math
import time
import unittest
from types import SimpleNamespace
from typing import Any

from support import LIMIT, WithServer

from changefeed import Batch, ChangefeedError, Processor, SignatureError, verify_webhook
from changefeed.testing import server


def emulator_token(key: str) -> str:
    """A token as the emulator's clients make it."""
    claims = {"oid": "11111111-1111-1111-1111-111111111111", "exp": int(time.time()) + 3600}
    parts = [json.dumps({"typ": "JWT", "alg": "RS256"}), json.dumps(claims), key]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


async def nothing(batch: Batch) -> None:
    pass


class Identity(WithServer):
    async def test_a_credential_is_enough(self) -> None:
        with server(insecure_aad=True) as started:
            account = started.aio
            orders, leases = await account.fresh_container(), await account.fresh_container("/id")
            scopes: list[str] = []

            class Credential:
                def get_token(self, *wanted: str, **more: Any) -> Any:
                    scopes.extend(wanted)
                    return SimpleNamespace(token=emulator_token(account.key), expires_on=time.time() + 3600)

            p = Processor(orders, leases=leases, name="m", handler=nothing, credential=Credential())
            async with p:
                await p.caught_up(timeout=LIMIT)
                self.assertEqual(await p.lag(), 0)
            self.assertEqual(set(scopes), {"http://127.0.0.1/.default"})

    async def test_an_error_has_a_word_for_its_cause(self) -> None:
        orders = await self.account.fresh_container()
        async with Processor(orders, name="m", handler=nothing, create_leases=True) as p:
            await p.caught_up(timeout=LIMIT)
        with self.assertRaises(ChangefeedError) as caught:
            async with Processor(orders, name="m", handler=nothing, start="now") as p:
                await p.wait()
        self.assertEqual((caught.exception.code, caught.exception.reason), ("usage", "start-ignored"))


class Webhooks(unittest.TestCase):
    def test_the_signature_is_checked(self) -> None:
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        headers = {
            "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,b2xk v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }
        body = b'{"test": 2432232314}'
        for secrets in (secret, ["AAAA", secret], [secret, "AAAA"]):
            found = verify_webhook(secrets, headers, body, tolerance=math.inf)
            self.assertEqual((found.id, found.time.timestamp()), ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330))
        with self.assertRaises(SignatureError):
            verify_webhook(secret, headers, body)  # too old
        for wrong in ({"Webhook-Id": "other"}, {"webhook-signature": ""}, {"webhook-timestamp": "yesterday"}):
            with self.assertRaises(SignatureError):
                verify_webhook(secret, headers | wrong, body, tolerance=math.inf)
        for one, text in (("AAAA", body), (secret, body + b" ")):
            with self.assertRaises(SignatureError):
                verify_webhook(one, headers, text, tolerance=math.inf)
        with self.assertRaises(ValueError):
            verify_webhook("no base64!", headers, body, tolerance=math.inf)
