import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;

/** Queries: of one key and of all, sorted, counted, by pages. */
public final class Queries {
    private static final int COUNT = 60;
    private static CosmosContainer filled;

    private static CosmosContainer filled() {
        if (filled == null) {
            // An ORDER BY of several paths needs a composite index.
            var properties = new CosmosContainerProperties("queried", "/pk").setIndexingPolicy(new IndexingPolicy()
                    .setCompositeIndexes(List.of(
                            List.of(path("/kind", CompositePathSortOrder.ASCENDING),
                                    path("/n", CompositePathSortOrder.DESCENDING)),
                            List.of(path("/kind", CompositePathSortOrder.DESCENDING),
                                    path("/pk", CompositePathSortOrder.ASCENDING)))));
            filled = Account.container(properties, 3);
            for (int n = 0; n < COUNT; n++) {
                filled.createItem(Account.item(String.format("%03d", n), "key " + n % 9, "n", n, "kind", n % 4));
            }
        }
        return filled;
    }

    private static CompositePath path(String path, CompositePathSortOrder order) {
        return new CompositePath().setPath(path).setOrder(order);
    }

    private static <T> List<T> ask(String text, Class<T> of) {
        return Account.query(filled(), text, of);
    }

    public void parameters() {
        var spec = new SqlQuerySpec("SELECT * FROM c WHERE c.n >= @low AND c.pk IN (@a, @b)",
                new SqlParameter("@low", 50), new SqlParameter("@a", "key 1"), new SqlParameter("@b", "key 2"));
        var found = filled().queryItems(spec, new CosmosQueryRequestOptions(), JsonNode.class);
        Account.equal(List.of("055", "056"), Account.sorted(Account.ids(found)));
    }

    public void sortedOverAllKeys() {
        Account.equal(Account.range(0, COUNT), ask("SELECT VALUE c.n FROM c ORDER BY c.n", Integer.class));
        Account.equal("059", Account.ids(ask("SELECT * FROM c ORDER BY c.id DESC", JsonNode.class)).get(0));
        List<Integer> want = new ArrayList<>(Account.range(0, COUNT));
        want.sort(Comparator.comparing((Integer n) -> n % 4).thenComparing(Comparator.reverseOrder()));
        List<JsonNode> both = ask("SELECT c.kind, c.n FROM c ORDER BY c.kind ASC, c.n DESC", JsonNode.class);
        Account.equal(want, both.stream().map(row -> row.get("n").asInt()).toList());
    }

    public void aggregatesOverAllKeys() {
        Account.equal(List.of(COUNT), ask("SELECT VALUE COUNT(1) FROM c", Integer.class));
        Account.equal(List.of(1770.0), ask("SELECT VALUE SUM(c.n) FROM c", Double.class));
        Account.equal(List.of(0), ask("SELECT VALUE MIN(c.n) FROM c", Integer.class));
        Account.equal(List.of(59), ask("SELECT VALUE MAX(c.n) FROM c", Integer.class));
        Account.equal(List.of(29.5), ask("SELECT VALUE AVG(c.n) FROM c", Double.class));
        List<JsonNode> groups = ask("SELECT c.kind, COUNT(1) AS count, SUM(c.n) AS sum FROM c GROUP BY c.kind", JsonNode.class);
        Account.equal(4, groups.size());
        Account.equal(1770, groups.stream().mapToInt(row -> row.get("sum").asInt()).sum());
        for (JsonNode row : groups) {
            Account.equal(15, row.get("count").asInt());
        }
    }

    public void topOffsetDistinctOverAllKeys() {
        Account.equal(List.of(59, 58, 57), ask("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", Integer.class));
        Account.equal(List.of(10, 11), ask("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 2", Integer.class));
        Account.equal(List.of(0, 1, 2, 3), ask("SELECT DISTINCT VALUE c.kind FROM c ORDER BY c.kind", Integer.class));
        Account.equal(4, ask("SELECT DISTINCT VALUE c.kind FROM c", Integer.class).size());
    }

    public void pagesByContinuation() {
        for (String text : List.of("SELECT * FROM c WHERE c.n != 7", "SELECT * FROM c ORDER BY c.n DESC",
                "SELECT * FROM c ORDER BY c.kind", "SELECT * FROM c ORDER BY c.kind DESC, c.pk", "SELECT TOP 30 * FROM c")) {
            List<String> want = Account.ids(ask(text, JsonNode.class));
            List<String> found = new ArrayList<>();
            String token = null;
            do { // one page of each iteration, as a client does that is asked for page after page
                FeedResponse<JsonNode> page = filled().queryItems(text, new CosmosQueryRequestOptions(), JsonNode.class)
                        .iterableByPage(token, 7).iterator().next();
                found.addAll(Account.ids(page.getResults()));
                token = page.getContinuationToken();
            } while (token != null);
            Account.equal(want, found);
        }
    }

    public void pagesBehindASplit() throws Exception {
        CosmosContainer c = Account.container("query-split", 1);
        List<String> made = Account.write(c, "item", 40);
        var pages = c.queryItems("SELECT * FROM c ORDER BY c.id", new CosmosQueryRequestOptions(), JsonNode.class)
                .iterableByPage(10).iterator();
        FeedResponse<JsonNode> first = pages.next();
        List<String> found = new ArrayList<>(Account.ids(first.getResults()));
        Account.split(c, "0");
        for (var page : c.queryItems("SELECT * FROM c ORDER BY c.id", new CosmosQueryRequestOptions(), JsonNode.class)
                .iterableByPage(first.getContinuationToken(), 10)) {
            found.addAll(Account.ids(page.getResults()));
        }
        Account.equal(made, found);
        Account.equal(made, Account.ids(Account.query(c, "SELECT * FROM c ORDER BY c.id", JsonNode.class)));
        Account.equal(40, Account.query(c, "SELECT VALUE COUNT(1) FROM c", Integer.class).get(0));
    }

    public void feedRanges() {
        List<String> found = new ArrayList<>();
        for (FeedRange range : filled().getFeedRanges()) {
            var options = new CosmosQueryRequestOptions().setFeedRange(range);
            List<String> part = Account.ids(filled().queryItems("SELECT * FROM c", options, JsonNode.class));
            Account.isTrue(!part.isEmpty() && part.size() < COUNT, part);
            found.addAll(part);
        }
        Account.equal(COUNT, found.stream().distinct().toList().size());
        Account.equal(COUNT, found.size());
    }

    public void wrongText() throws Exception {
        Account.refused(400, () -> ask("SELEC * FROM c", JsonNode.class));
    }
}
