import java.util.ArrayList;
import java.util.List;
import java.util.stream.StreamSupport;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchItemRequestOptions;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperationResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.fasterxml.jackson.databind.JsonNode;

/** Transactional batches, and bulk. */
public final class Batches {
    public void everyOperation() {
        CosmosContainer c = Account.container("batch", 1);
        for (String id : List.of("read", "replaced", "patched", "deleted")) {
            c.createItem(Account.item(id, "a", "n", 1));
        }
        CosmosBatch batch = CosmosBatch.createCosmosBatch(Account.pk("a"));
        batch.createItemOperation(Account.item("created", "a"));
        batch.upsertItemOperation(Account.item("upserted", "a"));
        batch.readItemOperation("read");
        batch.replaceItemOperation("replaced", Account.item("replaced", "a", "n", 2));
        batch.patchItemOperation("patched", CosmosPatchOperations.create().increment("/n", 1));
        batch.deleteItemOperation("deleted");
        CosmosBatchResponse done = c.executeCosmosBatch(batch);
        Account.equal(List.of(201, 201, 200, 200, 200, 204), statuses(done));
        Account.equal(1, done.getResults().get(2).getItem(JsonNode.class).get("n").asInt());
        Account.equal(List.of("created", "patched", "read", "replaced", "upserted"),
                Account.sorted(Account.ids(c.readAllItems(Account.pk("a"), JsonNode.class))));
    }

    public void nothingIsDoneWhenOneFails() {
        CosmosContainer c = Account.container("batch-fails", 1);
        String old = c.createItem(Account.item("1", "a")).getETag();
        c.upsertItem(Account.item("1", "a", "n", 2));
        CosmosBatch batch = CosmosBatch.createCosmosBatch(Account.pk("a"));
        batch.createItemOperation(Account.item("2", "a"));
        batch.replaceItemOperation("1", Account.item("1", "a"), new CosmosBatchItemRequestOptions().setIfMatchETag(old));
        batch.deleteItemOperation("1");
        CosmosBatchResponse done = c.executeCosmosBatch(batch);
        Account.equal(false, done.isSuccessStatusCode());
        Account.equal(List.of(424, 412, 424), statuses(done));
        Account.equal(List.of("1"), Account.ids(c.readAllItems(Account.pk("a"), JsonNode.class)));
    }

    public void bulk() throws Exception {
        CosmosContainer c = Account.container("bulk", 3);
        List<CosmosItemOperation> creates = new ArrayList<>();
        for (int n = 0; n < 500; n++) {
            creates.add(CosmosBulkOperations.getCreateItemOperation(Account.item("" + n, "key " + n, "n", n), Account.pk("key " + n)));
        }
        Account.equal(500L, count(c, creates, 201));
        Account.equal(500L, count(c, creates, 409));
        Account.split(c, "0"); // behind the client's back
        List<CosmosItemOperation> mixed = new ArrayList<>();
        for (int n = 0; n < 500; n += 4) {
            mixed.add(CosmosBulkOperations.getUpsertItemOperation(Account.item("" + n, "key " + n, "n", -1), Account.pk("key " + n)));
            mixed.add(CosmosBulkOperations.getPatchItemOperation("" + (n + 1), Account.pk("key " + (n + 1)),
                    CosmosPatchOperations.create().set("/n", -1)));
            mixed.add(CosmosBulkOperations.getReadItemOperation("" + (n + 2), Account.pk("key " + (n + 2))));
            mixed.add(CosmosBulkOperations.getDeleteItemOperation("" + (n + 3), Account.pk("key " + (n + 3))));
        }
        Account.equal(125L, count(c, mixed, 204));
        Account.equal(List.of(375), Account.query(c, "SELECT VALUE COUNT(1) FROM c", Integer.class));
        Account.equal(List.of(250), Account.query(c, "SELECT VALUE COUNT(1) FROM c WHERE c.n = -1", Integer.class));
    }

    private static List<Integer> statuses(CosmosBatchResponse done) {
        return done.getResults().stream().map(result -> result.getStatusCode()).toList();
    }

    /** count does operations in bulk and counts those that end with a status. */
    private static long count(CosmosContainer c, List<CosmosItemOperation> operations, int status) {
        Iterable<CosmosBulkOperationResponse<Object>> done = c.executeBulkOperations(operations);
        return StreamSupport.stream(done.spliterator(), false)
                .filter(one -> one.getResponse() != null && one.getResponse().getStatusCode() == status).count();
    }
}
