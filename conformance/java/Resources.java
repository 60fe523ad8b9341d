import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.PermissionMode;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.ThroughputResponse;
import com.fasterxml.jackson.databind.JsonNode;

/** Clients in direct mode, permissions, the deletion of a partition key, and a throughput that splits. */
public final class Resources {
    private static final int PATIENCE = 1_000; // reads of an offer

    public void directModeSaysWhatToDo() throws Exception {
        Account.container("direct", 1);
        try (CosmosClient direct = Account.builder().directMode().buildClient()) {
            CosmosContainer c = direct.getDatabase(Account.DATABASE).getContainer("direct");
            CosmosException e = Account.refused(400, () -> c.createItem(Account.item("1", "a"), Account.pk("a"), null));
            Account.isTrue(e.getMessage().contains("use gateway mode"), e.getMessage());
            Account.isTrue(e.getMessage().contains("gatewayMode()"), e.getMessage());
        }
    }

    /** The snippet of docs/server.md runs as it is, in a process of its own. */
    public void snippetOfTheDocuments() throws Exception {
        String page = Files.readString(Path.of("docs", "server.md"));
        int begin = page.indexOf("```java\n") + "```java\n".length();
        Path dir = Files.createTempDirectory("snippet");
        Path source = dir.resolve("Connect.java");
        try {
            Files.writeString(source, page.substring(begin, page.indexOf("\n```\n", begin)));
            ProcessBuilder run = new ProcessBuilder("java", "-cp", System.getProperty("java.class.path"),
                    "-Djavax.net.ssl.trustStore=" + System.getProperty("javax.net.ssl.trustStore"),
                    "-Djavax.net.ssl.trustStorePassword=changeit", source.toString()).redirectErrorStream(true);
            run.environment().put("COSMOS_ENDPOINT", Account.endpoint);
            run.environment().put("COSMOS_KEY", Account.key);
            Process process = run.start();
            String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            Account.isTrue(process.waitFor() == 0 && said.strip().endsWith(" databases"), said);
        } finally {
            Files.deleteIfExists(source);
            Files.delete(dir);
        }
    }

    public void tokensOfPermissions() throws Exception {
        CosmosContainer c = Account.container("permitted", 1);
        c.createItem(Account.item("1", "a"), Account.pk("a"), null);
        c.createItem(Account.item("2", "b"), Account.pk("b"), null);
        Account.database.createUser(new CosmosUserProperties().setId("ada"));
        CosmosPermissionProperties reads = new CosmosPermissionProperties().setId("reads")
                .setPermissionMode(PermissionMode.READ).setContainerName("permitted")
                .setResourcePartitionKey(Account.pk("a"));
        String token;
        try (CosmosAsyncClient owner = Account.builder().buildAsyncClient()) { // only this client has permissions
            token = owner.getDatabase(Account.DATABASE).getUser("ada").createPermission(reads, null).block()
                    .getProperties().getToken();
        }
        try (CosmosClient client = new CosmosClientBuilder().endpoint(Account.endpoint).resourceToken(token)
                .gatewayMode().consistencyLevel(ConsistencyLevel.SESSION).buildClient()) {
            CosmosContainer seen = client.getDatabase(Account.DATABASE).getContainer("permitted");
            Account.equal(200, seen.readItem("1", Account.pk("a"), JsonNode.class).getStatusCode());
            Account.refused(403, () -> seen.readItem("2", Account.pk("b"), JsonNode.class));
            Account.refused(403, () -> seen.deleteItem("1", Account.pk("a"), null));
        }
        Account.database.getUser("ada").delete();
    }

    public void deleteAllItemsOfAKey() throws Exception {
        CosmosContainer c = Account.container("emptied", 1);
        for (String id : List.of("1", "2")) {
            c.createItem(Account.item(id, "a"), Account.pk("a"), null);
        }
        c.createItem(Account.item("3", "b"), Account.pk("b"), null);
        c.deleteAllItemsByPartitionKey(Account.pk("a"), new CosmosItemRequestOptions());
        Account.refused(404, () -> c.readItem("1", Account.pk("a"), JsonNode.class));
        Account.refused(404, () -> c.readItem("2", Account.pk("a"), JsonNode.class));
        Account.equal(200, c.readItem("3", Account.pk("b"), JsonNode.class).getStatusCode());
    }

    public void aHigherThroughputSplits() throws Exception {
        CosmosContainer c = Account.container("grows", 1);
        c.createItem(Account.item("1", "a"), Account.pk("a"), null);
        c.replaceThroughput(ThroughputProperties.createManualThroughput(20_100));
        ThroughputResponse now = c.readThroughput();
        for (int reads = 0; now.isReplacePending(); reads++) {
            Account.isTrue(reads < PATIENCE, "the replace stays pending");
            now = c.readThroughput();
        }
        Account.equal(20_100, now.getProperties().getManualThroughput());
        Account.equal(3, c.getFeedRanges().size());
        Account.equal(200, c.readItem("1", Account.pk("a"), JsonNode.class).getStatusCode());
    }
}
