"""The change feed processor for Azure Cosmos DB."""

from changefeed._batch import Batch, Cancellation, Change
from changefeed._child import Event
from changefeed._errors import BinaryNotFound, ChangefeedError, Failure, Poison, Untried
from changefeed._processor import Processor
from changefeed._status import Lease, Status
from changefeed._version import VERSION as __version__
from changefeed.webhook import SignatureError, Webhook, verify_webhook

__all__ = [
    "Batch",
    "BinaryNotFound",
    "Cancellation",
    "Change",
    "ChangefeedError",
    "Event",
    "Failure",
    "Lease",
    "Poison",
    "Processor",
    "SignatureError",
    "Status",
    "Untried",
    "Webhook",
    "__version__",
    "verify_webhook",
]
