"""The change feed processor for Azure Cosmos DB."""

from changefeed._batch import Batch, Cancellation, Change
from changefeed._errors import BinaryNotFound, ChangefeedError, Failure, Poison, Untried
from changefeed._version import VERSION as __version__

__all__ = [
    "Batch",
    "BinaryNotFound",
    "Cancellation",
    "Change",
    "ChangefeedError",
    "Failure",
    "Poison",
    "Untried",
    "__version__",
]
