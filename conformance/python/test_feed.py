"""The change feed of latest versions."""

from datetime import datetime, timedelta, timezone

from account import AccountTest, drain, ids

COUNT = 40


class Feed(AccountTest):
    def filled(self, **options):
        """filled is a container with items of many keys, and their ids."""
        c = self.container(**options)
        return c, [c.create_item({"id": f"{n:02}", "pk": f"key {n}"})["id"] for n in range(COUNT)]

    def test_from_the_beginning(self):
        for throughput in (400, 30_000):
            with self.subTest(throughput):
                c = self.database.create_container(f"begin-{throughput}", {"paths": ["/pk"], "kind": "Hash", "version": 2}, offer_throughput=throughput)
                made = [c.create_item({"id": f"{n:02}", "pk": f"key {n}"}) for n in range(COUNT)]
                changes, _ = drain(c, start_time="Beginning")
                self.assertEqual(sorted(ids(changes)), ids(made))
                self.assertEqual({change["id"]: change["_etag"] for change in changes}, {item["id"]: item["_etag"] for item in made})
                self.assertEqual(sorted(ids(drain(c, start_time="Beginning", max_item_count=3)[0])), ids(made))

    def test_from_now_and_on(self):
        c, _ = self.filled(offer_throughput=30_000)
        changes, token = drain(c, start_time="Now")
        self.assertEqual(changes, [])
        for round in range(3):
            for n in (3, 7, 11):
                c.upsert_item({"id": f"{n:02}", "pk": f"key {n}", "round": round})
            changes, token = drain(self.again(c), continuation=token)
            self.assertEqual([(item["id"], item["round"]) for item in sorted(changes, key=lambda item: item["id"])],
                             [(name, round) for name in ("03", "07", "11")])
        self.assertEqual(drain(c, continuation=token)[0], [])

    def test_from_a_time(self):
        c, made = self.filled()
        early = datetime.now(timezone.utc) - timedelta(hours=1)
        self.assertEqual(ids(drain(c, start_time=early)[0]), made)
        late = datetime.now(timezone.utc) + timedelta(hours=1)
        self.assertEqual(drain(c, start_time=late)[0], [])

    def test_from_a_time_among_the_items(self):
        c = self.container(offer_throughput=30_000)
        first = c.create_item({"id": "first", "pk": "a"})
        second = {}

        def written():
            second.update(c.upsert_item({"id": "second", "pk": "b"}))
            return second["_ts"] > first["_ts"]

        self.until(written)
        time = datetime.fromtimestamp(first["_ts"], timezone.utc)
        self.assertEqual(ids(drain(c, start_time=time)[0]), ["second"])

    def test_feed_ranges(self):
        c, made = self.filled(offer_throughput=30_000)
        ranges = list(c.read_feed_ranges())
        self.assertEqual(len(ranges), 3)
        found, tokens = [], []
        for feed_range in ranges:
            changes, token = drain(c, feed_range=feed_range, start_time="Beginning")
            self.assertTrue(0 < len(changes) < COUNT)
            found += ids(changes)
            tokens.append(token)
        self.assertEqual(sorted(found), made)
        c.create_item({"id": "new", "pk": "new"})
        self.assertEqual(sum((ids(drain(c, continuation=token)[0]) for token in tokens), []), ["new"])

    def test_the_feed_range_of_a_key(self):
        c, _ = self.filled(offer_throughput=30_000)
        of_key = c.feed_range_from_partition_key("key 5")
        self.assertEqual(sum(c.is_feed_range_subset(whole, of_key) for whole in c.read_feed_ranges()), 1)
        self.assertEqual(ids(drain(c, feed_range=of_key, start_time="Beginning")[0]), ["05"])

    def test_one_key(self):
        c, _ = self.filled(offer_throughput=30_000)
        changes, token = drain(c, partition_key="key 5", start_time="Beginning")
        self.assertEqual(ids(changes), ["05"])
        c.create_item({"id": "other", "pk": "key 6"})
        c.create_item({"id": "more", "pk": "key 5"})
        self.assertEqual(ids(drain(c, continuation=token)[0]), ["more"])

    def test_the_old_way_by_the_id_of_a_range(self):
        c, made = self.filled()
        self.assertEqual(ids(drain(c, partition_key_range_id="0", is_start_from_beginning=True)[0]), made)

    def test_the_last_version_only_and_no_deletes(self):
        c = self.container()
        for n in range(5):
            c.upsert_item({"id": "1", "pk": "a", "n": n})
        c.create_item({"id": "2", "pk": "a"})
        c.delete_item("2", "a")
        self.assertEqual([(item["id"], item["n"]) for item in drain(c, start_time="Beginning")[0]], [("1", 4)])

    def test_pages(self):
        c, made = self.filled()
        pages = [ids(page) for page in c.query_items_change_feed(start_time="Beginning", max_item_count=15).by_page()]
        self.assertEqual([len(page) for page in pages if page], [15, 15, 10])
        self.assertEqual(sum(pages, []), made)
