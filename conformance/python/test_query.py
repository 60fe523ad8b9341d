"""Queries: of one key and of all, sorted, counted, by pages."""

from account import AccountTest, ids

COUNT = 60


class Query(AccountTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        key = {"id": "items", "partition_key": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        cls.c = cls.database.create_container(**key, offer_throughput=30_000)
        for n in range(COUNT):
            cls.c.create_item({"id": f"{n:03}", "pk": f"key {n % 9}", "n": n, "kind": n % 4, "tags": [n % 2, "x"]})

    def ask(self, query, partition_key=None, **options):
        """ask answers the rows of a query, over all keys unless one is given."""
        parameters = [{"name": f"@{name}", "value": value} for name, value in options.pop("values", {}).items()]
        over = {"enable_cross_partition_query": True} if partition_key is None else {"partition_key": partition_key}
        return list(self.c.query_items(query, parameters, **over, **options))

    def test_there_are_several_ranges(self):
        self.assertEqual(len(list(self.c.read_feed_ranges())), 3)

    def test_parameters(self):
        found = self.ask("SELECT * FROM c WHERE c.n >= @low AND c.pk IN (@a, @b)", values={"low": 50, "a": "key 1", "b": "key 2"})
        self.assertEqual(sorted(ids(found)), ["055", "056"])
        self.assertEqual(self.ask("SELECT VALUE @v FROM c WHERE c.id = '001'", values={"v": {"deep": [None]}}), [{"deep": [None]}])

    def test_one_key(self):
        want = [n for n in range(COUNT) if n % 9 == 3]
        self.assertEqual(self.ask("SELECT VALUE c.n FROM c ORDER BY c.n", "key 3"), want)
        self.assertEqual(self.ask("SELECT VALUE COUNT(1) FROM c", "key 3"), [len(want)])
        self.assertEqual(self.ask("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 2", "key 3"), want[-2:-4:-1])

    def test_order_over_all_keys(self):
        self.assertEqual(self.ask("SELECT VALUE c.n FROM c ORDER BY c.n"), list(range(COUNT)))
        self.assertEqual(self.ask("SELECT VALUE c.n FROM c ORDER BY c.n DESC", max_item_count=7), list(range(COUNT))[::-1])
        self.assertEqual(ids(self.ask("SELECT * FROM c WHERE c.kind = 2 ORDER BY c.id DESC"))[:2], ["058", "054"])
        both = self.ask("SELECT c.kind, c.n FROM c ORDER BY c.kind ASC, c.n DESC")
        self.assertEqual([(row["kind"], row["n"]) for row in both], sorted(((n % 4, n) for n in range(COUNT)), key=lambda p: (p[0], -p[1])))

    def test_aggregates_over_all_keys(self):
        for function, want in {"COUNT": COUNT, "SUM": 1770, "MIN": 0, "MAX": COUNT - 1, "AVG": 29.5}.items():
            with self.subTest(function):
                self.assertEqual(self.ask(f"SELECT VALUE {function}(c.n) FROM c"), [want])

    def test_top_offset_distinct_over_all_keys(self):
        self.assertEqual(self.ask("SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n DESC"), [59, 58, 57, 56])
        self.assertEqual(self.ask("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 3"), [10, 11, 12])
        self.assertEqual(sorted(self.ask("SELECT DISTINCT VALUE c.kind FROM c")), [0, 1, 2, 3])
        self.assertEqual(self.ask("SELECT DISTINCT VALUE c.kind FROM c ORDER BY c.kind"), [0, 1, 2, 3])

    def test_joins_and_functions(self):
        self.assertEqual(len(self.ask("SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 1")), COUNT // 2)
        self.assertEqual(self.ask("SELECT VALUE UPPER(c.pk) FROM c WHERE STARTSWITH(c.id, '01') AND c.n < 11"), ["KEY 1"])
        self.assertEqual(len(self.ask("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, 1) AND EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')")), 30)

    def test_pages_by_continuation(self):
        for text, partition_key in {
            "SELECT * FROM c WHERE c.n != 7": None,
            "SELECT * FROM c": "key 3",
            "SELECT * FROM c ORDER BY c.n DESC": "key 3",
        }.items():
            with self.subTest(text):
                over = {"enable_cross_partition_query": True} if partition_key is None else {"partition_key": partition_key}
                want = ids(self.ask(text, partition_key))
                found, token, pages = [], None, 0
                while pages == 0 or token:
                    pager = self.c.query_items(text, **over, max_item_count=4).by_page(token)
                    page = list(next(pager, []))
                    self.assertLessEqual(len(page), 4)
                    found += ids(page)
                    token = pager.continuation_token
                    pages += 1
                self.assertEqual(found, want)
                self.assertGreaterEqual(pages, len(want) // 4)

    def test_a_feed_range(self):
        found = []
        for feed_range in self.c.read_feed_ranges():
            part = ids(self.c.query_items("SELECT * FROM c", feed_range=feed_range))
            self.assertTrue(0 < len(part) < COUNT)
            found += part
        self.assertEqual(sorted(found), [f"{n:03}" for n in range(COUNT)])

    def test_metrics(self):
        pages = self.c.query_items("SELECT * FROM c WHERE c.n = 3", enable_cross_partition_query=True, populate_query_metrics=True)
        self.assertEqual(ids(pages), ["003"])
        self.assertIn("retrievedDocumentCount", self.c.client_connection.last_response_headers["x-ms-documentdb-query-metrics"])

    def test_what_cannot_be(self):
        for text in ("SELEC * FROM c", "SELECT * FROM c WHERE", "SELECT NOSUCH(c.id) FROM c"):
            with self.subTest(text):
                self.refused(400, self.ask, text)
        self.refused(400, lambda: list(self.c.query_items("SELECT * FROM c")))
