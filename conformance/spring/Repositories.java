package conformance;

import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.spring.data.cosmos.core.CosmosTemplate;
import com.azure.spring.data.cosmos.core.query.CosmosPageRequest;
import com.azure.spring.data.cosmos.exception.CosmosAccessException;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Sort;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.StreamSupport;

/** The tests: each public method is one, and begins with an empty container. */
public final class Repositories {
    private static final Sort BY_ID = Sort.by("id");

    private final Orders orders;
    private final CosmosTemplate template;

    Repositories(Orders orders, CosmosTemplate template) {
        this.orders = orders;
        this.template = template;
    }

    private static void equal(Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    private static String ids(Iterable<Order> all) {
        List<String> ids = new ArrayList<>();
        all.forEach(o -> ids.add(o.id));
        return String.join(" ", ids);
    }

    private void fill() {
        orders.saveAll(List.of(new Order("a", "Bonn", 10, "Ant"), new Order("b", "Bonn", 20, "bee"),
                new Order("c", "Rome", 30, "Cat"), new Order("d", "Rome", 40, "ant"),
                new Order("e", "Oslo", 50, "Elk")));
    }

    public void savesAndReads() {
        Order saved = orders.save(new Order("a", "Bonn", 10, "Ant"));
        Order read = orders.findById("a", new PartitionKey("Bonn")).orElseThrow();
        equal(read._etag, saved._etag);
        equal(read.amount, 10);
        equal(orders.findById("a").orElseThrow().name, "Ant");
        equal(orders.findById("a", new PartitionKey("Rome")), Optional.empty());
        equal(orders.existsById("a"), true);
    }

    public void refusesAStaleVersion() {
        Order first = orders.save(new Order("a", "Bonn", 10, "Ant"));
        Order second = orders.findById("a", new PartitionKey("Bonn")).orElseThrow();
        second.amount = 11;
        orders.save(second);
        first.amount = 12;
        try {
            orders.save(first);
        } catch (CosmosAccessException e) {
            equal(e.getCosmosException().getStatusCode(), 412);
            equal(orders.findById("a", new PartitionKey("Bonn")).orElseThrow().amount, 11);
            return;
        }
        throw new AssertionError("a stale version was saved");
    }

    public void refusesADuplicateOfAUniqueKey() {
        Order first = new Order("a", "Bonn", 10, "Ant");
        Order second = new Order("b", "Bonn", 10, "Ant");
        second.number = first.number;
        orders.save(first);
        try {
            orders.save(second);
        } catch (CosmosAccessException e) {
            equal(e.getCosmosException().getStatusCode(), 409);
            return;
        }
        throw new AssertionError("two orders of a number were saved");
    }

    public void patches() {
        orders.save(new Order("a", "Bonn", 10, "Ant"));
        Order patched = orders.save("a", new PartitionKey("Bonn"), Order.class,
                CosmosPatchOperations.create().increment("/amount", 5).set("/name", "Asp"));
        equal(patched.amount, 15);
        equal(orders.findById("a", new PartitionKey("Bonn")).orElseThrow().name, "Asp");
    }

    public void findsByConditions() {
        fill();
        equal(ids(orders.findByCityOrderByAmountDesc("Bonn")), "b a");
        equal(ids(orders.findByCityAndAmountGreaterThan("Rome", 30)), "d");
        equal(ids(orders.findByNameOrAmount("Ant", 50, BY_ID)), "a e");
        equal(ids(orders.findByAmountBetween(20, 40, BY_ID)), "b c d");
        equal(ids(orders.findByPaidTrue(BY_ID.descending())), "e d c");
        equal(ids(orders.findByNameIsNull()), "");
    }

    public void findsByTexts() {
        fill();
        equal(ids(orders.findByNameIn(List.of("Cat", "Elk"), BY_ID)), "c e");
        equal(ids(orders.findByNameNotIn(List.of("Cat", "Elk"), BY_ID)), "a b d");
        equal(ids(orders.findByNameStartsWithIgnoreCase("AN", BY_ID)), "a d");
        equal(ids(orders.findByNameContaining("e", BY_ID)), "b");
    }

    public void sorts() {
        fill();
        equal(ids(orders.findAll(Sort.by("amount").descending())), "e d c b a");
        equal(ids(orders.findAll(Sort.by(Sort.Order.asc("city"), Sort.Order.desc("amount")))), "b a e d c");
        equal(ids(orders.findTop2ByCity("Rome", Sort.by("amount").descending())), "d c");
    }

    public void pages() {
        fill();
        List<String> pages = new ArrayList<>();
        Pageable next = new CosmosPageRequest(0, 2, null, Sort.by("amount"));
        while (next.isPaged() && pages.size() < 9) {
            Page<Order> page = orders.findAll(next);
            pages.add(ids(page));
            equal(page.getTotalElements(), 5L);
            next = page.hasNext() ? page.nextPageable() : Pageable.unpaged();
        }
        equal(pages, List.of("a b", "c d", "e"));
        Page<Order> paid = orders.findByPaid(true, new CosmosPageRequest(0, 2, null, Sort.by("amount").descending()));
        equal(ids(paid), "e d");
        equal(paid.getTotalElements(), 3L);
    }

    public void slices() {
        fill();
        var slice = orders.atLeast(20, new CosmosPageRequest(0, 3, null));
        equal(ids(slice), "b c d");
        equal(ids(orders.atLeast(20, slice.nextPageable())), "e");
    }

    public void runsAnnotatedQueries() {
        fill();
        equal(orders.sumOf("Rome"), List.of(70L));
        List<String> cities = new ArrayList<>(orders.citiesAmong(List.of("Rome", "Oslo", "Paris")));
        cities.sort(null);
        equal(cities, List.of("Oslo", "Rome"));
    }

    public void countsAndExists() {
        fill();
        equal(orders.count(), 5L);
        equal(orders.countByCity("Rome"), 2L);
        equal(orders.existsByName("Elk"), true);
        equal(orders.existsByName("Eel"), false);
    }

    public void findsAllOfAKeyAndOfIDs() {
        fill();
        equal(ids(orders.findAll(new PartitionKey("Bonn"))), "a b");
        List<String> found = new ArrayList<>();
        orders.findAllById(List.of("a", "d", "x")).forEach(o -> found.add(o.id));
        found.sort(null);
        equal(found, List.of("a", "d"));
    }

    public void deletes() {
        fill();
        orders.deleteByCity("Bonn");
        orders.deleteById("e", new PartitionKey("Oslo"));
        orders.delete(orders.findById("c", new PartitionKey("Rome")).orElseThrow());
        equal(ids(orders.findAll(BY_ID)), "d");
        orders.deleteAll();
        equal(orders.count(), 0L);
    }

    public void showsTheContainer() {
        var properties = template.getContainerProperties("orders");
        equal(properties.getPartitionKeyDefinition().getPaths(), List.of("/city"));
        equal(properties.getUniqueKeyPolicy().getUniqueKeys().size(), 1);
        equal(properties.getIndexingPolicy().getCompositeIndexes().size(), 1);
        equal(StreamSupport.stream(orders.findAll().spliterator(), false).count(), 0L);
    }
}
