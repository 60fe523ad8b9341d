"""Items: written, read, changed under a condition, deleted."""

from azure.core import MatchConditions

from account import AccountTest, ids, plain


class Items(AccountTest):
    def test_create_read_replace_delete(self):
        c = self.container()
        item = {"id": "1", "pk": "a", "text": "naïve ☂ 😀", "number": 1.5e300, "deep": {"list": [1, None, True]}}
        made = c.create_item(item)
        self.assertEqual(plain(made), item)
        self.assertEqual(made["_etag"], made.get_response_headers()["etag"])
        self.assertGreater(float(made.get_response_headers()["x-ms-request-charge"]), 0)
        self.assertEqual(c.read_item("1", "a"), made)
        self.assertEqual(c.read_item(made, partition_key="a"), made)
        replaced = c.replace_item("1", {"id": "1", "pk": "a", "n": 2})
        self.assertEqual(plain(c.read_item("1", "a")), {"id": "1", "pk": "a", "n": 2})
        self.assertNotEqual(replaced["_etag"], made["_etag"])
        c.delete_item("1", "a")
        self.refused(404, c.read_item, "1", "a")

    def test_upsert_makes_and_replaces(self):
        c = self.container()
        for n in (1, 2):
            c.upsert_item({"id": "1", "pk": "a", "n": n})
            self.assertEqual(c.read_item("1", "a")["n"], n)

    def test_an_id_made_by_the_client(self):
        c = self.container()
        made = c.create_item({"pk": "a"}, enable_automatic_id_generation=True)
        self.assertEqual(c.read_item(made["id"], "a"), made)

    def test_ids_of_all_kinds(self):
        c = self.container()
        wild = ["a b", "a+b", "ü☂😀", "a&b=c", "a.b", "..x", "(1)", "'", '"', "a:b@c", "x" * 255]
        for name in wild:
            c.create_item({"id": name, "pk": "a"})
            self.assertEqual(c.read_item(name, "a")["id"], name)
        for name in wild:
            c.delete_item(name, "a")
        self.assertEqual(list(c.read_all_items()), [])

    def test_no_response(self):
        c = self.container()
        made = c.create_item({"id": "1", "pk": "a"}, no_response=True)
        self.assertEqual(dict(made), {})
        self.assertIn("etag", made.get_response_headers())

    def test_errors(self):
        c = self.container()
        made = c.create_item({"id": "1", "pk": "a"})
        self.refused(409, c.create_item, {"id": "1", "pk": "a"})
        self.refused(404, c.read_item, "2", "a")
        self.refused(404, c.replace_item, "2", {"id": "2", "pk": "a"})
        self.refused(404, c.delete_item, "1", "b")
        self.refused(413, c.create_item, {"id": "2", "pk": "a", "much": "x" * 2_200_000})
        gone = self.database.get_container_client("nowhere")
        self.refused(404, gone.read_item, "1", "a")
        self.assertEqual(c.read_item("1", "a"), made)

    def test_conditions(self):
        c = self.container()
        old = c.create_item({"id": "1", "pk": "a", "n": 1})
        same = {"match_condition": MatchConditions.IfNotModified}
        new = c.replace_item("1", {"id": "1", "pk": "a", "n": 2}, etag=old["_etag"], **same)
        stale = {"etag": old["_etag"], **same}
        self.refused(412, c.replace_item, "1", {"id": "1", "pk": "a", "n": 3}, **stale)
        self.refused(412, c.upsert_item, {"id": "1", "pk": "a", "n": 3}, **stale)
        self.refused(412, c.patch_item, "1", "a", [{"op": "incr", "path": "/n", "value": 1}], **stale)
        self.refused(412, c.delete_item, "1", "a", **stale)
        self.assertEqual(c.read_item("1", "a"), new)
        c.delete_item("1", "a", etag=new["_etag"], **same)

    def test_read_of_what_is_not_modified(self):
        c = self.container()
        made = c.create_item({"id": "1", "pk": "a"})
        unless = {"etag": made["_etag"], "match_condition": MatchConditions.IfModified}
        self.assertEqual(c.read_item("1", "a", **unless), {})  # what the SDK makes of a 304
        c.upsert_item({"id": "1", "pk": "a", "n": 2})
        self.assertEqual(c.read_item("1", "a", **unless)["n"], 2)

    def test_patch(self):
        c = self.container()
        c.create_item({"id": "1", "pk": "a", "n": 1, "old": "x", "list": [1, 3], "from": 7})
        patched = c.patch_item("1", "a", [
            {"op": "add", "path": "/list/1", "value": 2},
            {"op": "set", "path": "/new", "value": {"deep": True}},
            {"op": "incr", "path": "/n", "value": 4},
            {"op": "remove", "path": "/old"},
            {"op": "move", "from": "/from", "path": "/to"},
        ])
        want = {"id": "1", "pk": "a", "n": 5, "list": [1, 2, 3], "new": {"deep": True}, "to": 7}
        self.assertEqual(plain(patched), want)
        self.assertEqual(c.read_item("1", "a"), patched)

    def test_patch_under_a_filter(self):
        c = self.container()
        c.create_item({"id": "1", "pk": "a", "n": 1})
        more = [{"op": "incr", "path": "/n", "value": 1}]
        self.assertEqual(c.patch_item("1", "a", more, filter_predicate="from c where c.n = 1")["n"], 2)
        self.refused(412, c.patch_item, "1", "a", more, filter_predicate="from c where c.n = 1")
        self.refused(404, c.patch_item, "2", "a", more)
        self.refused(400, c.patch_item, "1", "a", [{"op": "replace", "path": "/none", "value": 1}])
        self.assertEqual(c.read_item("1", "a")["n"], 2)

    def test_read_all_items(self):
        c = self.container(offer_throughput=30_000)
        want = sorted(f"item {n:03}" for n in range(50))
        for n, name in enumerate(want):
            c.create_item({"id": name, "pk": f"key {n % 7}"})
        self.assertEqual(sorted(ids(c.read_all_items())), want)
        self.assertEqual(sorted(ids(c.read_all_items(max_item_count=3))), want)

    def test_read_items(self):
        c = self.container(offer_throughput=30_000)
        for n in range(50):
            c.create_item({"id": f"{n}", "pk": f"key {n % 7}"})
        asked = [(f"{n}", f"key {n % 7}") for n in range(0, 60, 2)]
        self.assertEqual(sorted(map(int, ids(c.read_items(asked)))), list(range(0, 50, 2)))

    def test_expiry(self):
        c = self.container(default_ttl=-1)
        c.create_item({"id": "1", "pk": "a", "ttl": 1})
        c.create_item({"id": "2", "pk": "a"})
        self.until(lambda: ids(c.read_all_items()) == ["2"])
