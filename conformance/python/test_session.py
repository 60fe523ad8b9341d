"""Session consistency, and the other levels."""

from azure.cosmos.exceptions import CosmosHttpResponseError

from account import AccountTest, ids, repartition


class Session(AccountTest):
    def test_a_client_reads_its_own_writes(self):
        c = self.again(self.container(offer_throughput=30_000), consistency_level="Session")
        for n in range(20):
            pk = f"key {n % 5}"
            c.upsert_item({"id": "it", "pk": pk, "n": n})
            self.assertEqual(c.read_item("it", pk)["n"], n)
            self.assertEqual(list(c.query_items("SELECT VALUE c.n FROM c", partition_key=pk)), [n])
        self.assertEqual(list(c.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)), [5])

    def test_a_token_that_is_passed_on(self):
        c = self.container()
        token = c.create_item({"id": "1", "pk": "a"}).get_response_headers()["x-ms-session-token"]
        self.assertRegex(token, r"^0:-1#[1-9][0-9]*$")
        other = self.again(c, consistency_level="Session")
        self.assertEqual(other.read_item("1", "a", session_token=token)["id"], "1")

    def test_the_latest_of_tokens(self):
        c = self.container(offer_throughput=30_000)
        [of_key] = [r for r in c.read_feed_ranges() if c.is_feed_range_subset(r, c.feed_range_from_partition_key("a"))]
        tokens = []
        for n in range(3):
            headers = c.upsert_item({"id": "1", "pk": "a", "n": n}).get_response_headers()
            tokens.append((of_key, headers["x-ms-session-token"]))
        latest = c.get_latest_session_token(tokens, c.feed_range_from_partition_key("a"))
        self.assertEqual(latest, tokens[-1][1])
        self.assertEqual(c.read_item("1", "a", session_token=latest)["n"], 2)

    def test_a_token_from_the_future(self):
        c = self.container()
        c.create_item({"id": "1", "pk": "a"})
        other = self.again(c, consistency_level="Session")
        with self.assertRaises(CosmosHttpResponseError) as caught:
            other.read_item("1", "a", session_token="0:-1#1000000")
        self.assertEqual((caught.exception.status_code, caught.exception.sub_status), (404, 1002))

    def test_after_a_split(self):
        c = self.again(self.container(), consistency_level="Session")
        c.create_item({"id": "1", "pk": "a"})
        repartition(c, operation="split", id="0")
        for pk in "abcd":
            c.create_item({"id": "2", "pk": pk})
        self.assertEqual(ids(c.query_items("SELECT * FROM c", partition_key="a")), ["1", "2"])
        self.assertEqual([c.read_item("2", pk)["id"] for pk in "abcd"], ["2"] * 4)

    def test_other_levels(self):
        made = self.container()
        made.create_item({"id": "1", "pk": "a"})
        for level in ("Eventual", "ConsistentPrefix"):
            with self.subTest(level):
                c = self.again(made, consistency_level=level)
                self.assertEqual(ids(c.read_all_items()), ["1"])
        for level in ("BoundedStaleness", "Strong"):  # above the account's
            with self.subTest(level):
                c = self.again(made, consistency_level=level)
                self.refused(400, list, c.read_all_items())
