"""Verifies the requests on standard input, one JSON object a line, with the library for Standard Webhooks from PyPI."""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

for line in sys.stdin:
    request = json.loads(line)
    try:
        Webhook(request["Secret"]).verify(request["Body"], request["Headers"])
        print("ok")
    except WebhookVerificationError:
        print("refused")
