"""Partition keys of all kinds, also hierarchical ones."""

from azure.cosmos import PartitionKey
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue

from account import AccountTest, drain, ids

VALUES = ["text", "ü☂😀", "", 0, -1.5, 1e300, True, False]


class Keys(AccountTest):
    def check(self, c):
        for n, value in enumerate(VALUES):
            c.create_item({"id": f"{n}", "pk": value})
            self.assertEqual(c.read_item(f"{n}", value)["pk"], value)
            self.assertEqual(ids(c.query_items("SELECT * FROM c", partition_key=value)), [f"{n}"])
            if value:  # the SDK reads the feed of all keys for "", 0 and False
                self.assertEqual(ids(drain(c, partition_key=value, start_time="Beginning")[0]), [f"{n}"])

    def test_values(self):
        self.check(self.container(offer_throughput=50_000))

    def test_values_hashed_in_version_1(self):
        self.check(self.database.create_container("version-1", PartitionKey("/pk", version=1), offer_throughput=50_000))

    def test_null_and_none(self):
        c = self.container(offer_throughput=30_000)
        c.create_item({"id": "1"})
        c.create_item({"id": "2", "pk": None})
        self.assertEqual(c.read_item("1", NonePartitionKeyValue)["id"], "1")
        self.assertEqual(c.read_item("2", NullPartitionKeyValue)["id"], "2")
        self.refused(404, c.read_item, "2", NonePartitionKeyValue)

    def test_long_keys_differ_at_their_end(self):
        c = self.container(offer_throughput=30_000)
        for end in "ab":
            c.create_item({"id": "1", "pk": "x" * 1_000 + end, "n": end})
        self.assertEqual(c.read_item("1", "x" * 1_000 + "b")["n"], "b")

    def test_hierarchical_keys(self):
        c = self.container("/tenant", "/user", "/session", offer_throughput=30_000)
        for tenant in ("t1", "t2"):
            for user in ("u1", "u2"):
                for session in range(5):
                    c.create_item({"id": "it", "tenant": tenant, "user": user, "session": session})
        self.assertEqual(c.read_item("it", ["t1", "u2", 3])["session"], 3)
        self.assertEqual(len(list(c.query_items("SELECT * FROM c", partition_key=["t1", "u2", 3]))), 1)
        for prefix, want in ((["t1", "u2"], 5), (["t2"], 10)):
            self.assertEqual(len(list(c.query_items("SELECT * FROM c", partition_key=prefix))), want)
            self.assertEqual(len(drain(c, partition_key=prefix, start_time="Beginning")[0]), want)
        in_order = c.query_items("SELECT VALUE c.session FROM c ORDER BY c.session DESC", partition_key=["t1", "u1"])
        self.assertEqual(list(in_order), [4, 3, 2, 1, 0])
        c.delete_item("it", ["t1", "u2", 3])
        self.refused(404, c.read_item, "it", ["t1", "u2", 3])
        self.assertEqual(c.execute_item_batch([("delete", ("it",))], ["t1", "u2", 4])[0]["statusCode"], 204)
