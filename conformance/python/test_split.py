"""What becomes of reads, queries and continuations when partitions are split and merged."""

from account import AccountTest, drain, ids, repartition

COUNT = 40


class Split(AccountTest):
    def write(self, c, word):
        return [c.upsert_item({"id": f"{word} {n:02}", "pk": f"key {n}"})["id"] for n in range(COUNT)]

    def test_the_change_feed_goes_on(self):
        c = self.container()
        made = self.write(c, "before")
        first, token = drain(c, start_time="Beginning")
        self.assertEqual(ids(first), made)
        repartition(c, operation="split", id="0")
        made = self.write(c, "between")
        repartition(c, operation="split", id="1")
        made += self.write(c, "after")
        for client in (c, self.again(c)):
            changes, behind = drain(client, continuation=token)
            self.assertEqual(sorted(ids(changes)), sorted(made))
            self.assertEqual(drain(client, continuation=behind)[0], [])

    def test_a_feed_that_is_being_read(self):
        c = self.container()
        made = self.write(c, "item")
        pages = c.query_items_change_feed(start_time="Beginning", max_item_count=7).by_page()
        found = ids(next(pages)) + ids(next(pages))
        repartition(c, operation="split", id="0")
        made += self.write(c, "more")
        for page in pages:
            found += ids(page)
        self.assertEqual(sorted(found), sorted(made))

    def test_a_feed_range_of_before(self):
        c = self.container()
        made = self.write(c, "item")
        [whole] = c.read_feed_ranges()
        repartition(c, operation="split", id="0")
        self.assertEqual(sorted(ids(drain(c, feed_range=whole, start_time="Beginning")[0])), made)
        self.assertEqual(len(list(c.read_feed_ranges(force_refresh=True))), 2)

    def test_a_feed_of_all_versions(self):
        c = self.container(change_feed_policy={"retentionDuration": 10})
        _, token = drain(c, mode="AllVersionsAndDeletes", start_time="Now")
        made = self.write(c, "item")
        repartition(c, operation="split", id="0")
        for n, name in enumerate(made):
            c.delete_item(name, f"key {n}")
        changes, _ = drain(c, continuation=token)
        kinds = [change["metadata"]["operationType"] for change in changes]
        self.assertEqual((kinds.count("create"), kinds.count("delete")), (COUNT, COUNT))

    def test_merged_ranges(self):
        c = self.container(offer_throughput=20_000)
        made = self.write(c, "item")
        first, token = drain(c, start_time="Beginning")
        self.assertEqual(sorted(ids(first)), made)
        repartition(c, operation="merge", ids=["0", "1"])
        more = self.write(c, "more")
        for client in (c, self.again(c)):
            self.assertEqual(sorted(ids(drain(client, continuation=token)[0])), more)

    def test_the_feed_of_a_key(self):
        c = self.container()
        self.write(c, "item")
        _, token = drain(c, partition_key="key 5", start_time="Beginning")
        repartition(c, operation="split", id="0")
        self.write(c, "more")
        self.assertEqual(ids(drain(c, continuation=token)[0]), ["more 05"])

    def test_queries_and_reads(self):
        c = self.container()
        made = self.write(c, "item")
        everything = {"query": "SELECT * FROM c", "enable_cross_partition_query": True}
        pages = c.query_items(**everything, max_item_count=10).by_page()
        found = ids(next(pages))
        repartition(c, operation="split", id="0")
        for page in pages:  # sorted pages begin anew here: the SDK does not keep where it was
            found += ids(page)
        self.assertEqual(sorted(found), made)
        in_order = c.query_items("SELECT * FROM c ORDER BY c.id", enable_cross_partition_query=True)
        self.assertEqual(ids(in_order), made)
        self.assertEqual(sorted(ids(c.read_all_items())), made)
        for n, name in enumerate(made):
            self.assertEqual(c.read_item(name, f"key {n}")["id"], name)
