"""The vector stores of langchain: langchain-azure-cosmosdb, and the older one of langchain-community."""

import os
import unittest

from azure.cosmos import CosmosClient, PartitionKey
from langchain_azure_cosmosdb import AzureCosmosDBNoSqlVectorSearch
from langchain_community.vectorstores.azure_cosmos_db_no_sql import (
    AzureCosmosDBNoSqlVectorSearch as CommunityVectorSearch,
)
from langchain_core.embeddings import Embeddings

from words import DIMENSIONS, TEXTS, vector


class Counting(Embeddings):
    """Counting embeds a text by counting words."""

    def embed_documents(self, texts):
        return [vector(text) for text in texts]

    def embed_query(self, text):
        return vector(text)


def policies(distance):
    """policies are those of a container with a text and a vector."""
    return {
        "vector_embedding_policy": {
            "vectorEmbeddings": [
                {"path": "/embedding", "dataType": "float32", "distanceFunction": distance, "dimensions": DIMENSIONS}
            ]
        },
        "indexing_policy": {
            "indexingMode": "consistent",
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": '/"_etag"/?'}],
            "vectorIndexes": [{"path": "/embedding", "type": "quantizedFlat"}],
            "fullTextIndexes": [{"path": "/text"}],
        },
        "full_text_policy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text", "language": "en-US"}]},
        "cosmos_container_properties": {"partition_key": PartitionKey("/id")},
        "cosmos_database_properties": {},
        "vector_search_fields": {"text_field": "text", "embedding_field": "embedding"},
        "full_text_search_enabled": True,
    }


class VectorStoreTest(unittest.TestCase):
    """VectorStoreTest runs the searches of langchain-azure-cosmosdb."""

    store_type = AzureCosmosDBNoSqlVectorSearch

    def store(self, distance="cosine"):
        client = CosmosClient(os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"])
        self.addCleanup(client.close)
        database = f"{type(self).__name__}-{self._testMethodName}-{distance}"
        store = self.store_type(
            cosmos_client=client,
            embedding=Counting(),
            database_name=database,
            container_name="texts",
            **self.policies(distance),
        )
        self.addCleanup(client.delete_database, database)
        ids = store.add_texts(list(TEXTS), [{"place": place} for place in range(len(TEXTS))])
        self.assertEqual(len(ids), len(TEXTS))
        self.ids = ids
        return store

    def policies(self, distance):
        return policies(distance)

    def texts(self, documents):
        return [document.page_content for document in documents]

    def test_nearest_first(self):
        for distance in ("cosine", "dotproduct", "euclidean"):
            with self.subTest(distance):
                found = self.store(distance).similarity_search_with_score("snow and rain and snow", k=2)
                self.assertEqual(self.texts(document for document, _ in found), [TEXTS[4], TEXTS[3]])

    def test_scores(self):
        store = self.store()
        (document, score), *_ = store.similarity_search_with_score("plum plum", k=3)
        self.assertEqual(document.page_content, TEXTS[1])
        self.assertAlmostEqual(score, 1.0, places=6)

    def test_delete(self):
        store = self.store()
        store.delete([self.ids[4]])
        self.assertEqual(self.texts(store.similarity_search("snow", k=1)), [TEXTS[3]])

    def test_full_text_ranking(self):
        found = self.store().similarity_search(
            "", k=2, search_type="full_text_ranking", full_text_rank_filter=[{"search_field": "text", "search_text": "pear apple"}]
        )
        self.assertEqual(self.texts(found)[0], TEXTS[0])

    def test_hybrid(self):
        found = self.store().similarity_search(
            "snow rain", k=2, search_type="hybrid", full_text_rank_filter=[{"search_field": "text", "search_text": "snow"}]
        )
        self.assertEqual(self.texts(found)[0], TEXTS[4])

    def test_hybrid_with_weights(self):
        found = self.store().similarity_search(
            "ship",
            k=1,
            search_type="hybrid",
            full_text_rank_filter=[{"search_field": "text", "search_text": "snow"}],
            weights=[0.1, 5.0],
        )
        self.assertEqual(self.texts(found), [TEXTS[3]])

    def test_marginal_relevance(self):
        found = self.texts(self.store().max_marginal_relevance_search("rain and snow", k=2, fetch_k=3))
        self.assertEqual(len(set(found)), 2)


class CommunityVectorStoreTest(VectorStoreTest):
    """CommunityVectorStoreTest runs the vector searches of langchain-community, whose other searches differ."""

    store_type = CommunityVectorSearch
    test_full_text_ranking = test_hybrid = test_hybrid_with_weights = None
    test_marginal_relevance = None  # it looks for the vectors in the metadata, where its own query does not put them

    def policies(self, distance):
        """The older store knows one name of each field, and no texts."""
        own = policies(distance)
        for name in ("full_text_policy", "full_text_search_enabled", "vector_search_fields"):
            del own[name]
        del own["indexing_policy"]["fullTextIndexes"]
        return own


if __name__ == "__main__":
    unittest.main()
