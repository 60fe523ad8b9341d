"""Databases, containers, their throughput, and who may come in."""

from azure.cosmos.exceptions import CosmosHttpResponseError

from account import AccountTest, connect, ids


class Account(AccountTest):
    def test_databases_and_containers(self):
        self.assertIn(self.database.id, ids(self.client.list_databases()))
        found = self.client.query_databases("SELECT * FROM d WHERE d.id = @id", [{"name": "@id", "value": self.database.id}])
        self.assertEqual(ids(found), [self.database.id])
        self.assertEqual(self.client.create_database_if_not_exists(self.database.id).id, self.database.id)
        c = self.container(default_ttl=60, unique_key_policy={"uniqueKeys": [{"paths": ["/mail"]}]})
        self.assertEqual(ids(self.database.list_containers()), [c.id])
        self.assertEqual(ids(self.database.query_containers("SELECT * FROM c WHERE c.defaultTtl = 60")), [c.id])
        c.create_item({"id": "1", "pk": "a", "mail": "x"})
        self.refused(409, c.create_item, {"id": "2", "pk": "a", "mail": "x"})
        # The SDK cannot send the unique keys with a replace, and the service refuses one without them.
        self.refused(403, self.database.replace_container, c, c.read()["partitionKey"], default_ttl=120)
        self.refused(409, self.client.create_database, self.database.id)
        self.database.delete_container(c)
        self.refused(404, c.read)

    def test_a_container_is_replaced(self):
        c = self.container(default_ttl=60)
        kept = self.database.replace_container(c, c.read()["partitionKey"], default_ttl=120)
        self.assertEqual(kept.read()["defaultTtl"], 120)
        self.database.delete_container(c)  # the tests of a class share a database

    def test_throughput(self):
        c = self.container(offer_throughput=500)
        self.assertEqual(c.get_throughput().offer_throughput, 500)
        c.replace_throughput(700)
        self.assertEqual(c.get_throughput().offer_throughput, 700)

    def test_throttled_requests_wait(self):
        c = self.container(offer_throughput=400)
        hasty = self.again(c, retry_throttle_total=1, retry_fixed_interval=1)
        item = {"id": "1", "pk": "a", "much": "x" * 100_000}
        with self.assertRaises(CosmosHttpResponseError) as caught:
            for _ in range(10):
                hasty.upsert_item(item)
        self.assertEqual((caught.exception.status_code, caught.exception.sub_status), (429, 3200))
        self.assertGreater(int(caught.exception.headers["x-ms-retry-after-ms"]), 0)
        for n in range(3):
            c.upsert_item({**item, "n": n})
        self.assertEqual(c.read_item("1", "a")["n"], 2)

    def test_a_wrong_key(self):
        with self.assertRaises(CosmosHttpResponseError) as caught:
            connect("d3JvbmcgYnV0IGxvbmcgZW5vdWdo")
        self.assertEqual(caught.exception.status_code, 401)

