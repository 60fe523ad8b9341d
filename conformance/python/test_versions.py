"""The change feed of all versions and deletes."""

from azure.cosmos import PartitionKey

from account import AccountTest, drain, plain

MODE = "AllVersionsAndDeletes"


def told(change):
    """told is the short of a change: what happened to which state."""
    return change["metadata"]["operationType"], plain(change["current"]) if change.get("current") else None


class Versions(AccountTest):
    def keeping(self, **options):
        """keeping is a container that keeps all versions for ten minutes."""
        return self.container(change_feed_policy={"retentionDuration": 10}, **options)

    def test_the_policy_is_kept(self):
        self.assertEqual(self.keeping().read()["changeFeedPolicy"]["retentionDuration"], 10)

    def test_every_write_and_the_delete_in_order(self):
        c = self.keeping(offer_throughput=30_000)
        for scope in ({}, {"partition_key": "a"}):
            with self.subTest(scope):
                _, token = drain(c, mode=MODE, start_time="Now", **scope)
                c.create_item({"id": "1", "pk": "a", "n": 1})
                c.upsert_item({"id": "1", "pk": "a", "n": 2})
                last = c.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}])
                c.delete_item("1", "a")
                changes, behind = drain(self.again(c), continuation=token)
                self.assertEqual([told(change) for change in changes], [
                    ("create", {"id": "1", "pk": "a", "n": 1}),
                    ("replace", {"id": "1", "pk": "a", "n": 2}),
                    ("replace", {"id": "1", "pk": "a", "n": 3}),
                    ("delete", None),
                ])
                lsns = [change["metadata"]["lsn"] for change in changes]
                self.assertEqual(lsns, sorted(set(lsns)))
                self.assertEqual([change["metadata"]["previousImageLSN"] for change in changes[1:]], lsns[:-1])
                self.assertEqual(changes[-1]["previous"], last)
                self.assertEqual(drain(c, continuation=behind)[0], [])
                self.assertEqual(drain(c, continuation=token, max_item_count=1)[0], changes)

    def test_expiry_is_a_delete_that_says_so(self):
        c = self.keeping(default_ttl=-1)
        _, token = drain(c, mode=MODE, start_time="Now")
        c.create_item({"id": "1", "pk": "a", "ttl": 1})
        self.until(lambda: len(drain(c, continuation=token)[0]) == 2)
        gone = drain(c, continuation=token)[0][-1]
        self.assertEqual(gone["metadata"]["operationType"], "delete")
        self.assertIs(gone["metadata"]["timeToLiveExpired"], True)

    def test_a_plain_container_has_the_versions_that_the_account_keeps(self):
        c = self.database.create_container("plain", PartitionKey("/pk"))
        _, token = drain(c, mode=MODE, start_time="Now")
        c.create_item({"id": "1", "pk": "a"})
        c.delete_item("1", "a")
        self.assertEqual([told(change) for change in drain(c, continuation=token)[0]], [("create", {"id": "1", "pk": "a"}), ("delete", None)])
        self.assertNotIn("changeFeedPolicy", c.read())
