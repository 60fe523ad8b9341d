import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.JsonNode;

/** The change feed, pulled: latest versions, and all versions and deletes. */
public final class Feeds {
    private record Drained(List<JsonNode> changes, String token) {}

    /** drain reads to the end: until a page is empty. */
    private static Drained drain(CosmosContainer c, CosmosChangeFeedRequestOptions options) {
        List<JsonNode> changes = new ArrayList<>();
        String token = null;
        for (FeedResponse<JsonNode> page : c.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
            changes.addAll(page.getResults());
            token = page.getContinuationToken();
        }
        return new Drained(changes, token);
    }

    private static CosmosChangeFeedRequestOptions beginning(FeedRange range) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range);
    }

    private static CosmosChangeFeedRequestOptions behind(String token) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token);
    }

    public void fromTheBeginningAndOn() {
        for (int partitions : List.of(1, 3)) {
            CosmosContainer c = Account.container("feed-" + partitions, partitions);
            List<String> made = Account.write(c, "item", 40);
            Drained all = drain(c, beginning(FeedRange.forFullRange()));
            Account.equal(made, Account.sorted(Account.ids(all.changes)));
            Account.equal(made, Account.sorted(Account.ids(drain(c, beginning(FeedRange.forFullRange()).setMaxItemCount(7)).changes)));
            List<String> more = Account.write(c, "more", 10);
            Account.equal(more, Account.sorted(Account.ids(drain(c, behind(all.token)).changes)));
        }
    }

    public void fromNowAndFromATime() {
        CosmosContainer c = Account.container("feed-now", 3);
        List<String> made = Account.write(c, "item", 20);
        Drained now = drain(c, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()));
        Account.equal(List.of(), now.changes);
        Instant early = Instant.now().minusSeconds(3600);
        Account.equal(made, Account.sorted(Account.ids(drain(c,
                CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(early, FeedRange.forFullRange())).changes)));
        List<String> more = Account.write(c, "more", 10);
        Account.equal(more, Account.sorted(Account.ids(drain(c, behind(now.token)).changes)));
    }

    public void feedRanges() {
        CosmosContainer c = Account.container("feed-ranges", 3);
        List<String> made = Account.write(c, "item", 40);
        List<String> found = new ArrayList<>();
        for (FeedRange range : c.getFeedRanges()) {
            List<String> part = Account.ids(drain(c, beginning(FeedRange.fromString(range.toString()))).changes);
            Account.isTrue(!part.isEmpty() && part.size() < 40, part);
            found.addAll(part);
        }
        Account.equal(made, Account.sorted(found));
        FeedRange key = FeedRange.forLogicalPartition(Account.pk("key 5"));
        Account.equal(List.of("item 005"), Account.ids(drain(c, beginning(key)).changes));
    }

    public void overSplitsAndAMerge() throws Exception {
        CosmosContainer c = Account.container("feed-split", 1);
        List<String> made = new ArrayList<>(Account.write(c, "a", 40));
        Drained first = drain(c, beginning(FeedRange.forFullRange()));
        Account.equal(made, Account.sorted(Account.ids(first.changes)));
        Account.split(c, "0");
        List<String> more = Account.write(c, "b", 40);
        Drained second = drain(c, behind(first.token));
        Account.equal(more, Account.sorted(Account.ids(second.changes)));
        Account.split(c, "1");
        Account.repartition(c, "{\"operation\":\"merge\",\"ids\":[\"4\",\"2\"]}");
        List<String> last = Account.write(c, "c", 40);
        Account.equal(last, Account.sorted(Account.ids(drain(c, behind(second.token)).changes)));
        made.addAll(more);
        made.addAll(last);
        Account.equal(made, Account.sorted(Account.ids(drain(c, beginning(FeedRange.forFullRange())).changes)));
    }

    public void allVersionsAndDeletes() throws Exception {
        CosmosContainer c = Account.container(new CosmosContainerProperties("versions", "/pk")
                .setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10))), 1);
        Drained now = drain(c, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes());
        Account.equal(List.of(), now.changes);
        c.createItem(Account.item("1", "a", "n", 1));
        c.upsertItem(Account.item("1", "a", "n", 2));
        Account.split(c, "0");
        c.patchItem("1", Account.pk("a"), CosmosPatchOperations.create().increment("/n", 1), JsonNode.class);
        c.deleteItem("1", Account.pk("a"), null);
        List<JsonNode> changes = drain(c, behind(now.token).allVersionsAndDeletes()).changes;
        Account.equal(List.of("create", "replace", "replace", "delete"),
                changes.stream().map(change -> change.get("metadata").get("operationType").asText()).toList());
        Account.equal(3, changes.get(2).get("current").get("n").asInt());
        Account.equal(3, changes.get(3).get("previous").get("n").asInt());
    }
}
