"""The vector store of semantic-kernel. Its hybrid search sends a query that the service refuses, too."""

import os
import unittest
from dataclasses import dataclass
from typing import Annotated

from azure.cosmos.aio import CosmosClient
from semantic_kernel.connectors.azure_cosmos_db import CosmosNoSqlCollection
from semantic_kernel.data.vector import DistanceFunction, VectorStoreField, vectorstoremodel

from words import DIMENSIONS, TEXTS, vector


def model(distance):
    """model is the type of a record with a vector of this distance function."""

    @vectorstoremodel(collection_name="texts")
    @dataclass
    class Text:
        id: Annotated[str, VectorStoreField("key")]
        text: Annotated[str, VectorStoreField("data", is_full_text_indexed=True)]
        embedding: Annotated[
            list[float] | None,
            VectorStoreField("vector", dimensions=DIMENSIONS, distance_function=distance, type="float"),
        ] = None

    return Text


class CollectionTest(unittest.IsolatedAsyncioTestCase):
    async def collection(self, distance):
        client = CosmosClient(os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"], connection_verify=False)
        self.addAsyncCleanup(client.close)
        record = model(distance)
        collection = CosmosNoSqlCollection(
            record_type=record, cosmos_client=client, database_name=f"sk-{distance.value}", create_database=True,
            url=os.environ["COSMOS_ENDPOINT"], key=os.environ["COSMOS_KEY"],
        )
        await collection.ensure_collection_exists()
        await collection.upsert([record(str(i), text, vector(text)) for i, text in enumerate(TEXTS)])
        return collection

    async def test_nearest_first(self):
        for distance in (
            DistanceFunction.COSINE_SIMILARITY,
            DistanceFunction.DOT_PROD,
            DistanceFunction.EUCLIDEAN_DISTANCE,
        ):
            with self.subTest(distance):
                collection = await self.collection(distance)
                found = await collection.search(vector=vector("snow and rain and snow"), top=2)
                texts = [result.record.text async for result in found.results]
                self.assertEqual(texts, [TEXTS[4], TEXTS[3]])

    async def test_filter_and_get(self):
        collection = await self.collection(DistanceFunction.COSINE_SIMILARITY)
        found = await collection.search(vector=vector("rain"), top=5, filter="lambda x: x.text == 'a plum and a plum'")
        self.assertEqual([result.record.id async for result in found.results], ["1"])
        record = await collection.get("2")
        self.assertEqual(record.text, TEXTS[2])
        await collection.delete("2")
        self.assertIsNone(await collection.get("2"))


if __name__ == "__main__":
    unittest.main()
