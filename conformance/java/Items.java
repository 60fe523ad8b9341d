import java.util.List;
import java.util.Map;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.GatewayConnectionConfig;
import com.azure.cosmos.ThrottlingRetryOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import reactor.core.publisher.Flux;

/** Items, alone: written, read, changed under a condition, deleted; their keys; who may come in. */
public final class Items {
    private static final int BURST = 1_000; // creates at once

    public void createReadReplaceUpsertDelete() throws Exception {
        CosmosContainer c = Account.container("crud", 1);
        ObjectNode item = Account.item("1 ü☂", "a", "text", "naïve ☂ 😀", "deep", Map.of("list", List.of(1, true)));
        JsonNode made = c.createItem(item).getItem();
        Account.equal(item, Account.plain(made));
        Account.equal(made, read(c, "1 ü☂", "a"));
        Account.refused(409, () -> c.createItem(item));
        c.replaceItem(item.put("n", 2), "1 ü☂", Account.pk("a"), null);
        Account.equal(2, read(c, "1 ü☂", "a").get("n").asInt());
        c.upsertItem(item.put("n", 3));
        c.upsertItem(Account.item("2", "a"));
        Account.equal(3, read(c, "1 ü☂", "a").get("n").asInt());
        Account.equal(204, c.deleteItem("1 ü☂", Account.pk("a"), null).getStatusCode());
        Account.equal(0, Account.refused(404, () -> read(c, "1 ü☂", "a")).getSubStatusCode());
        Account.refused(404, () -> c.replaceItem(item, "1 ü☂", Account.pk("a"), null));
        Account.equal(List.of("2"), Account.ids(c.readAllItems(Account.pk("a"), JsonNode.class)));
        Account.refused(413, () -> c.createItem(Account.item("3", "a", "much", "x".repeat(2_200_000))));
        Account.refused(404, () -> read(Account.database.getContainer("nowhere"), "1", "a"));
    }

    public void withoutContent() {
        CosmosContainer c = Account.container("content", 1);
        var options = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
        var made = c.createItem(Account.item("1", "a"), Account.pk("a"), options);
        Account.equal(null, made.getItem());
        Account.equal(made.getETag(), read(c, "1", "a").get("_etag").asText());
    }

    public void conditions() throws Exception {
        CosmosContainer c = Account.container("conditions", 1);
        String old = c.createItem(Account.item("1", "a")).getETag();
        ObjectNode item = Account.item("1", "a", "n", 2);
        String now = c.replaceItem(item, "1", Account.pk("a"), match(old)).getETag();
        Account.refused(412, () -> c.replaceItem(item, "1", Account.pk("a"), match(old)));
        Account.refused(412, () -> c.upsertItem(item, match(old)));
        Account.refused(412, () -> c.deleteItem("1", Account.pk("a"), match(old)));
        var unless = new CosmosItemRequestOptions().setIfNoneMatchETag(now);
        Account.equal(304, c.readItem("1", Account.pk("a"), unless, JsonNode.class).getStatusCode());
        Account.equal(204, c.deleteItem("1", Account.pk("a"), match(now)).getStatusCode());
    }

    public void patch() throws Exception {
        CosmosContainer c = Account.container("patch", 1);
        c.createItem(Account.item("1", "a", "n", 1, "old", "x", "list", List.of(1, 3), "from", 7));
        var operations = CosmosPatchOperations.create().add("/list/1", 2).set("/new", Map.of("deep", true))
                .increment("/n", 4).remove("/old").move("/from", "/to").replace("/n", 5.5);
        JsonNode patched = c.patchItem("1", Account.pk("a"), operations, JsonNode.class).getItem();
        Account.equal(Account.item("1", "a", "n", 5.5, "list", List.of(1, 2, 3), "new", Map.of("deep", true), "to", 7),
                Account.plain(patched));
        var more = CosmosPatchOperations.create().increment("/n", 1);
        var only = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 5.5");
        Account.equal(6.5, c.patchItem("1", Account.pk("a"), more, only, JsonNode.class).getItem().get("n").asDouble());
        Account.refused(412, () -> c.patchItem("1", Account.pk("a"), more, only, JsonNode.class));
    }

    public void readMany() {
        CosmosContainer c = Account.container("many", 3);
        Account.write(c, "item", 30);
        List<CosmosItemIdentity> asked = Account.range(20, 40).stream()
                .map(n -> new CosmosItemIdentity(Account.pk("key " + n), String.format("item %03d", n))).toList();
        var found = c.readMany(asked, JsonNode.class).getResults();
        Account.equal(10, found.size());
        Account.equal(3, c.getFeedRanges().size());
    }

    public void keysOfAllKinds() throws Exception {
        CosmosContainer c = Account.container("keys", 5);
        for (Object value : List.of("text", "ü☂😀", "", 0, -1.5, 1e300, true, false, "x".repeat(1_000))) {
            ObjectNode item = Account.item("1", "", "pk", value);
            c.createItem(item, Account.pk(value), null);
            Account.equal(201, c.upsertItem(item.deepCopy().put("id", "2")).getStatusCode());
            Account.equal(200, c.readItem("2", Account.pk(value), JsonNode.class).getStatusCode());
        }
        ObjectNode without = Account.item("1", "");
        without.remove("pk");
        c.createItem(without);
        Account.equal(200, c.readItem("1", PartitionKey.NONE, JsonNode.class).getStatusCode());
        Account.refused(400, () -> c.createItem(Account.item("1", "a"), Account.pk("b"), null));
    }

    public void aBurstOfOneAddressLosesNoRequest() {
        CosmosContainer c = Account.container("burst", 3);
        var connections = new GatewayConnectionConfig().setMaxConnectionPoolSize(BURST); // as many as requests
        try (CosmosAsyncClient client = Account.builder().gatewayMode(connections).buildAsyncClient()) {
            var items = client.getDatabase(Account.DATABASE).getContainer("burst");
            Account.equal((long) BURST, Flux.range(0, BURST)
                    .flatMap(n -> items.createItem(Account.item("burst " + n, "key " + n)), BURST).count().block());
        }
        Account.equal(List.of(BURST), Account.query(c, "SELECT VALUE COUNT(1) FROM c", Integer.class));
    }

    public void hierarchicalKeys() {
        var key = new PartitionKeyDefinition().setPaths(List.of("/tenant", "/user")).setKind(PartitionKind.MULTI_HASH)
                .setVersion(PartitionKeyDefinitionVersion.V2);
        CosmosContainer c = Account.container(new CosmosContainerProperties("hierarchy", key), 3);
        for (String tenant : List.of("t1", "t2")) {
            for (int user = 0; user < 5; user++) {
                c.createItem(Account.item("it", "", "tenant", tenant, "user", "u" + user));
            }
        }
        PartitionKey full = new PartitionKeyBuilder().add("t1").add("u3").build();
        Account.equal("u3", c.readItem("it", full, JsonNode.class).getItem().get("user").asText());
        PartitionKey prefix = new PartitionKeyBuilder().add("t2").build();
        var options = new com.azure.cosmos.models.CosmosQueryRequestOptions().setPartitionKey(prefix);
        Account.equal(5L, c.queryItems("SELECT * FROM c", options, JsonNode.class).stream().count());
        Account.equal(5L, c.readAllItems(prefix, JsonNode.class).stream().count());
    }

    public void levelsOfConsistency() throws Exception {
        CosmosContainer c = Account.container("levels", 1);
        c.createItem(Account.item("1", "a"));
        for (ConsistencyLevel level : ConsistencyLevel.values()) {
            try (CosmosClient client = Account.builder().consistencyLevel(level).buildClient()) {
                CosmosContainer again = client.getDatabase(Account.DATABASE).getContainer("levels");
                if (level == ConsistencyLevel.STRONG || level == ConsistencyLevel.BOUNDED_STALENESS) { // above the account's
                    Account.refused(400, () -> read(again, "1", "a"));
                } else {
                    Account.equal("1", read(again, "1", "a").get("id").asText());
                }
            }
        }
    }

    public void throughputAndThrottling() throws Exception {
        Account.database.createContainer(new CosmosContainerProperties("throttled", "/pk"),
                ThroughputProperties.createManualThroughput(400));
        CosmosContainer c = Account.database.getContainer("throttled");
        Account.equal(400, c.readThroughput().getProperties().getManualThroughput());
        ObjectNode item = Account.item("1", "a", "much", "x".repeat(100_000));
        for (int n = 0; n < 3; n++) { // these wait, and are done
            c.upsertItem(item.put("n", n));
        }
        Account.equal(2, read(c, "1", "a").get("n").asInt());
        var never = new ThrottlingRetryOptions().setMaxRetryAttemptsOnThrottledRequests(0);
        try (CosmosClient hasty = Account.builder().throttlingRetryOptions(never).buildClient()) {
            CosmosContainer again = hasty.getDatabase(Account.DATABASE).getContainer("throttled");
            CosmosException e = Account.refused(429, () -> {
                for (int n = 0; n < 20; n++) {
                    again.upsertItem(item);
                }
                return "20 writes";
            });
            Account.equal(3200, e.getSubStatusCode());
            Account.isTrue(e.getRetryAfterDuration().toMillis() > 0, e.getRetryAfterDuration());
        }
        c.replaceThroughput(ThroughputProperties.createManualThroughput(700));
        Account.equal(700, c.readThroughput().getProperties().getManualThroughput());
    }

    private static JsonNode read(CosmosContainer c, String id, String pk) {
        return c.readItem(id, Account.pk(pk), JsonNode.class).getItem();
    }

    private static CosmosItemRequestOptions match(String etag) {
        return new CosmosItemRequestOptions().setIfMatchETag(etag);
    }
}
