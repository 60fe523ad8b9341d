import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** The account under test, and what many tests ask of it. */
final class Account {
    static final String DATABASE = "java";
    private static final ObjectMapper JSON = new ObjectMapper();

    static String endpoint;
    static String binary;
    static CosmosClient client;
    static CosmosDatabase database;
    static String key;

    static void open(String endpoint, String key, String binary) {
        Account.endpoint = endpoint;
        Account.key = key;
        Account.binary = binary;
        client = builder().buildClient();
        client.createDatabase(DATABASE);
        database = client.getDatabase(DATABASE);
    }

    static void close() {
        database.delete();
        client.close();
    }

    /** builder is for clients of one's own, which know nothing of what others have seen. */
    static CosmosClientBuilder builder() {
        return new CosmosClientBuilder().endpoint(endpoint).key(key).gatewayMode()
                .contentResponseOnWriteEnabled(true).consistencyLevel(ConsistencyLevel.SESSION);
    }

    /** container makes a container of so many partitions. */
    static CosmosContainer container(CosmosContainerProperties properties, int partitions) {
        int throughput = partitions == 1 ? 4_000 : partitions * 10_000;
        database.createContainer(properties, ThroughputProperties.createManualThroughput(throughput));
        return database.getContainer(properties.getId());
    }

    static CosmosContainer container(String id, int partitions) {
        return container(new CosmosContainerProperties(id, "/pk"), partitions);
    }

    static PartitionKey pk(Object value) {
        return new PartitionKey(value);
    }

    /** item is a document of id and partition key, and of members by name and value. */
    static ObjectNode item(String id, String pk, Object... members) {
        ObjectNode item = JSON.createObjectNode().put("id", id).put("pk", pk);
        for (int i = 0; i < members.length; i += 2) {
            item.set((String) members[i], JSON.valueToTree(members[i + 1]));
        }
        return item;
    }

    /** write makes items "word 000" and on, each of a key of its own, and returns their ids. */
    static List<String> write(CosmosContainer c, String word, int count) {
        List<String> made = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            String id = String.format("%s %03d", word, n);
            c.createItem(item(id, "key " + n, "n", n), pk("key " + n), null);
            made.add(id);
        }
        return made;
    }

    /** plain is an item without what the server adds to it. */
    static JsonNode plain(JsonNode item) {
        return ((ObjectNode) item.deepCopy()).remove(List.of("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"));
    }

    static List<String> ids(Iterable<? extends JsonNode> items) {
        return StreamSupport.stream(items.spliterator(), false).map(item -> item.get("id").asText()).toList();
    }

    static List<String> sorted(List<String> values) {
        return values.stream().sorted().toList();
    }

    static List<Integer> range(int from, int to) {
        return IntStream.range(from, to).boxed().toList();
    }

    /** query answers all rows of a query. */
    static <T> List<T> query(CosmosContainer c, String text, Class<T> of) {
        return c.queryItems(text, new CosmosQueryRequestOptions(), of).stream().toList();
    }

    static void equal(Object want, Object got) {
        if (!Objects.equals(want, got)) {
            throw new AssertionError("got  " + got + "\nwant " + want);
        }
    }

    static void isTrue(boolean holds, Object told) {
        if (!holds) {
            throw new AssertionError(told);
        }
    }

    /** refused says that a call is answered with an error. */
    static CosmosException refused(int status, Callable<?> call) throws Exception {
        try {
            Object answer = call.call();
            throw new AssertionError("got " + answer + ", want status " + status);
        } catch (CosmosException e) {
            if (e.getStatusCode() != status) {
                throw e;
            }
            return e;
        }
    }

    /** until asks every few milliseconds until the answer is true or the limit is over. */
    static void until(Duration limit, Callable<Boolean> ask, Callable<?> tell) throws Exception {
        for (long end = System.nanoTime() + limit.toNanos(); !ask.call(); Thread.sleep(50)) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not true within " + limit + ": " + tell.call());
            }
        }
    }

    /** repartition asks the server, as a test may, to split a partition or merge two. */
    static void repartition(CosmosContainer c, String body) throws Exception {
        String link = "dbs/" + DATABASE + "/colls/" + c.getId();
        String date = DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now(ZoneOffset.UTC));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(key), "HmacSHA256"));
        String signed = "post\npartitions\n" + link + "\n" + date.toLowerCase(Locale.ROOT) + "\n\n";
        String signature = Base64.getEncoder().encodeToString(mac.doFinal(signed.getBytes(StandardCharsets.UTF_8)));
        HttpRequest post = HttpRequest.newBuilder(URI.create(endpoint + link + "/partitions"))
                .header("authorization", URLEncoder.encode("type=master&ver=1.0&sig=" + signature, StandardCharsets.UTF_8))
                .header("x-ms-date", date).header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(post, HttpResponse.BodyHandlers.ofString());
        isTrue(answer.statusCode() < 300, Arrays.asList(answer.statusCode(), answer.body()));
    }

    static void split(CosmosContainer c, String id) throws Exception {
        repartition(c, "{\"operation\":\"split\",\"id\":\"" + id + "\"}");
    }
}
