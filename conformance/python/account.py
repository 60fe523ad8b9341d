"""The account under test, and what many tests ask of it. run.py starts it and says where it is."""

import base64
import hashlib
import hmac
import json
import os
import ssl
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from email.utils import formatdate

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

ENDPOINT = os.environ["COSMOS_ENDPOINT"]
KEY = os.environ["COSMOS_KEY"]
CERTIFICATE = os.environ["COSMOS_CERTIFICATE"]


def connect(key=KEY, **options):
    """connect is a client of its own, which knows nothing of what others have seen."""
    return CosmosClient(ENDPOINT, key, **options)


class AccountTest(unittest.TestCase):
    """AccountTest has a database that lives as long as the tests of a class."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.client = connect()
        cls.addClassCleanup(cls.client.close)
        cls.database = cls.client.create_database(f"py-{cls.__name__}")
        cls.addClassCleanup(cls.client.delete_database, cls.database.id)

    def container(self, *paths, **options):
        """container makes a container named after the test, partitioned by /pk if no paths are given."""
        key = PartitionKey(list(paths), kind="MultiHash") if len(paths) > 1 else PartitionKey((paths or ["/pk"])[0])
        return self.database.create_container(self.id().rpartition(".")[2], key, **options)

    def again(self, container, **options):
        """again is the same container, seen by a client of its own."""
        client = connect(**options)
        self.addCleanup(client.close)
        return client.get_database_client(self.database.id).get_container_client(container.id)

    def refused(self, status, call, *args, sub_status=None, **options):
        """refused says that a call is answered with an error, and returns it."""
        with self.assertRaises(CosmosHttpResponseError) as caught:
            call(*args, **options)
        error = caught.exception
        got = (error.status_code, None if sub_status is None else error.sub_status)
        self.assertEqual(got, (status, sub_status), error)
        return error

    def until(self, ask, limit=20):
        """until asks every few milliseconds until the answer is true or the limit, in seconds, is over."""
        end = time.monotonic() + limit
        while not ask():
            self.assertLess(time.monotonic(), end, f"not true within {limit} s")
            time.sleep(0.025)


def plain(item):
    """plain is an item without what the server adds to it."""
    added = {"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"}
    return {name: value for name, value in item.items() if name not in added}


def ids(items):
    """ids are the ids of some items, in their order."""
    return [item["id"] for item in items]


def drain(container, **options):
    """drain reads a change feed to its end: the changes, and the continuation behind them."""
    changes = container.query_items_change_feed(**options)
    found = list(changes)
    return found, container.client_connection.last_response_headers["etag"]


def repartition(container, **request):
    """repartition asks the server, as a test may, to split a partition or merge two; it returns the new ones."""
    link = urllib.parse.unquote(container.container_link).strip("/")
    date = formatdate(usegmt=True)
    signed = f"post\npartitions\n{link}\n{date.lower()}\n\n"
    signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    token = urllib.parse.quote(f"type=master&ver=1.0&sig={base64.b64encode(signature).decode()}", safe="")
    post = urllib.request.Request(
        urllib.parse.urljoin(ENDPOINT, f"{link}/partitions"),
        method="POST",
        data=json.dumps(request).encode(),
        headers={"authorization": token, "x-ms-date": date, "content-type": "application/json"},
    )
    with urllib.request.urlopen(post, context=ssl.create_default_context(cafile=CERTIFICATE)) as answer:
        return json.load(answer)
