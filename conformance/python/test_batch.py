"""Transactional batches."""

from azure.cosmos.exceptions import CosmosBatchOperationError

from account import AccountTest, ids, plain


class Batch(AccountTest):
    def test_every_operation(self):
        c = self.container()
        for name in ("read", "replaced", "patched", "deleted"):
            c.create_item({"id": name, "pk": "a", "n": 1})
        results = c.execute_item_batch([
            ("create", ({"id": "created", "pk": "a"},)),
            ("upsert", ({"id": "upserted", "pk": "a"},)),
            ("read", ("read",)),
            ("replace", ("replaced", {"id": "replaced", "pk": "a", "n": 2})),
            ("patch", ("patched", [{"op": "incr", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 1"}),
            ("delete", ("deleted",)),
        ], "a")
        self.assertEqual([result["statusCode"] for result in results], [201, 201, 200, 200, 200, 204])
        self.assertEqual(plain(results[2]["resourceBody"]), {"id": "read", "pk": "a", "n": 1})
        self.assertEqual(results[4]["resourceBody"]["n"], 2)
        want = ["created", "patched", "read", "replaced", "upserted"]
        self.assertEqual(sorted(ids(c.read_all_items())), want)
        self.assertEqual(results[0]["eTag"], c.read_item("created", "a")["_etag"])

    def test_nothing_is_done_when_one_fails(self):
        c = self.container()
        c.create_item({"id": "1", "pk": "a"})
        with self.assertRaises(CosmosBatchOperationError) as caught:
            c.execute_item_batch([
                ("create", ({"id": "0", "pk": "a"},)),
                ("create", ({"id": "1", "pk": "a"},)),
                ("delete", ("1",)),
            ], "a")
        self.assertEqual((caught.exception.status_code, caught.exception.error_index), (409, 1))
        statuses = [response["statusCode"] for response in caught.exception.operation_responses]
        self.assertEqual(statuses, [424, 409, 424])
        self.assertEqual(ids(c.read_all_items()), ["1"])

    def test_conditions(self):
        c = self.container()
        old = c.create_item({"id": "1", "pk": "a", "n": 1})
        replace = ("replace", ("1", {"id": "1", "pk": "a", "n": 2}))
        c.execute_item_batch([(*replace, {"if_match_etag": old["_etag"]})], "a")
        with self.assertRaises(CosmosBatchOperationError) as caught:
            c.execute_item_batch([(*replace, {"if_match_etag": old["_etag"]}), ("delete", ("1",))], "a")
        self.assertEqual(caught.exception.status_code, 412)
        self.assertEqual(c.read_item("1", "a")["n"], 2)

    def test_a_hundred_operations_and_no_more(self):
        c = self.container()
        creates = [("create", ({"id": f"{n:03}", "pk": "a"},)) for n in range(101)]
        self.refused(400, c.execute_item_batch, creates, "a")
        self.assertEqual(len(c.execute_item_batch(creates[:100], "a")), 100)
        self.assertEqual(ids(c.query_items("SELECT c.id FROM c ORDER BY c.id", partition_key="a"))[-1], "099")

    def test_another_key(self):
        c = self.container()
        with self.assertRaises(CosmosBatchOperationError) as caught:
            c.execute_item_batch([("create", ({"id": "1", "pk": "b"},))], "a")
        self.assertEqual(caught.exception.status_code, 400)
        self.assertEqual(list(c.read_all_items()), [])
