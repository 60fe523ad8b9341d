import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BiFunction;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.fasterxml.jackson.databind.JsonNode;

/** The change feed processor of the SDK: two hosts that share leases, over splits. */
public final class Processors {
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final int COUNT = 40;

    /** A Fleet is hosts on one container, which note what they are told, and of whom. */
    private static final class Fleet implements AutoCloseable {
        final CosmosContainer feed;
        final CosmosContainer leases;
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        final Collection<String> deleted = new ConcurrentLinkedQueue<>();
        private final CosmosAsyncClient client = Account.builder().buildAsyncClient();
        private final Map<String, ChangeFeedProcessor> hosts = new HashMap<>();
        private final BiFunction<Fleet, ChangeFeedProcessorBuilder, ChangeFeedProcessorBuilder> handler;
        private final boolean fromBeginning;

        Fleet(String name, boolean fromBeginning,
                BiFunction<Fleet, ChangeFeedProcessorBuilder, ChangeFeedProcessorBuilder> handler) {
            this.handler = handler;
            this.fromBeginning = fromBeginning;
            feed = Account.container(new CosmosContainerProperties("cfp-" + name, "/pk"), 1); // as in the SDK's samples
            leases = Account.container(new CosmosContainerProperties("cfp-" + name + "-leases", "/id"), 1);
        }

        void start(String host) {
            var options = new ChangeFeedProcessorOptions().setStartFromBeginning(fromBeginning).setLeasePrefix("unit")
                    .setFeedPollDelay(Duration.ofMillis(100)).setLeaseAcquireInterval(Duration.ofSeconds(1))
                    .setLeaseRenewInterval(Duration.ofSeconds(1)).setLeaseExpirationInterval(Duration.ofSeconds(5));
            var builder = new ChangeFeedProcessorBuilder().hostName(host).options(options)
                    .feedContainer(container(feed)).leaseContainer(container(leases));
            ChangeFeedProcessor processor = handler.apply(this, builder).buildChangeFeedProcessor();
            processor.start().block(LIMIT);
            hosts.put(host, processor);
        }

        void stop(String host) {
            hosts.remove(host).stop().block(LIMIT);
        }

        private CosmosAsyncContainer container(CosmosContainer of) {
            return client.getDatabase(Account.DATABASE).getContainer(of.getId());
        }

        /** owned waits until so many leases are owned, by exactly these hosts. */
        void owned(int count, String... by) throws Exception {
            Account.until(LIMIT, () -> owners().size() == count && new TreeSet<>(owners()).equals(Set.of(by)), this::owners);
        }

        private List<String> owners() {
            String text = "SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)";
            return Account.query(leases, text, JsonNode.class).stream().map(lease -> lease.path("Owner").asText()).sorted().toList();
        }

        void note(List<ChangeFeedProcessorItem> changes) {
            for (ChangeFeedProcessorItem change : changes) {
                JsonNode current = change.getCurrent();
                if (current == null || current.path("id").isMissingNode()) {
                    deleted.add(change.getPrevious().get("id").asText());
                } else {
                    seen.add(current.get("id").asText());
                }
            }
        }

        void saw(List<String> ids) throws Exception {
            Account.until(LIMIT, () -> seen.containsAll(ids), () -> {
                List<String> missing = new ArrayList<>(ids);
                missing.removeAll(seen);
                return "without " + missing;
            });
        }

        /** lag is what the processor itself takes for left to do. */
        int lag() {
            ChangeFeedProcessor any = hosts.values().iterator().next();
            return any.getCurrentState().block(LIMIT).stream().mapToInt(state -> state.getEstimatedLag()).sum();
        }

        @Override
        public void close() {
            List.copyOf(hosts.keySet()).forEach(this::stop);
            client.close();
        }
    }

    public void handleChanges() throws Exception {
        try (Fleet fleet = new Fleet("pk", true, (it, builder) -> builder.handleChanges(
                (List<JsonNode> docs) -> it.seen.addAll(Account.ids(docs))))) {
            story(fleet);
        }
    }

    public void handleLatestVersionChanges() throws Exception {
        try (Fleet fleet = new Fleet("epk", true, (it, builder) -> builder.handleLatestVersionChanges(it::note))) {
            story(fleet);
        }
    }

    public void handleAllVersionsAndDeletesChanges() throws Exception {
        try (Fleet fleet = new Fleet("versions", false, (it, builder) -> builder.handleAllVersionsAndDeletesChanges(it::note))) {
            fleet.start("a");
            Account.until(LIMIT, () -> { // it begins with now, whenever that is
                fleet.feed.upsertItem(Account.item("probe", "probe"));
                return fleet.seen.contains("probe");
            }, () -> fleet.seen);
            fleet.stop("a");
            List<String> made = story(fleet);
            fleet.start("a");
            for (int n = 0; n < COUNT; n++) {
                fleet.feed.deleteItem(made.get(n), Account.pk("key " + n), null);
            }
            Account.until(LIMIT, () -> fleet.deleted.size() >= COUNT, () -> fleet.deleted);
            Account.equal(Account.sorted(made.subList(0, COUNT)), fleet.deleted.stream().distinct().sorted().toList());
        }
    }

    /** story is what happens to a fleet: a host, another one, splits, and one host less. It returns what was written. */
    private static List<String> story(Fleet fleet) throws Exception {
        List<String> made = new ArrayList<>(Account.write(fleet.feed, "before", COUNT));
        fleet.start("a");
        fleet.saw(made);
        fleet.start("b");
        made.addAll(Account.write(fleet.feed, "whole", COUNT));
        Account.split(fleet.feed, "0");
        made.addAll(Account.write(fleet.feed, "split", COUNT));
        fleet.saw(made);
        fleet.owned(2, "a", "b");
        Account.split(fleet.feed, "1");
        made.addAll(Account.write(fleet.feed, "split again", COUNT));
        fleet.saw(made);
        fleet.owned(3, "a", "b");
        Account.until(LIMIT, () -> fleet.lag() == 0, fleet::lag);
        fleet.stop("a");
        made.addAll(Account.write(fleet.feed, "alone", COUNT));
        fleet.saw(made);
        fleet.owned(3, "b");
        return made;
    }
}
