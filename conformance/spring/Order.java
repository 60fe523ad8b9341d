package conformance;

import com.azure.spring.data.cosmos.core.mapping.Container;
import com.azure.spring.data.cosmos.core.mapping.CosmosIndexingPolicy;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKey;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKeyPolicy;
import com.azure.spring.data.cosmos.core.mapping.CompositeIndex;
import com.azure.spring.data.cosmos.core.mapping.CompositeIndexPath;
import com.azure.spring.data.cosmos.core.mapping.PartitionKey;
import com.azure.cosmos.models.CompositePathSortOrder;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;

/** An order: what the repositories of the tests keep. */
@Container(containerName = "orders", ru = "400")
@CosmosUniqueKeyPolicy(uniqueKeys = {@CosmosUniqueKey(paths = {"/number"})})
@CosmosIndexingPolicy(compositeIndexes = {@CompositeIndex(paths = {
    @CompositeIndexPath(path = "/city", order = CompositePathSortOrder.ASCENDING),
    @CompositeIndexPath(path = "/amount", order = CompositePathSortOrder.DESCENDING)
})})
public class Order {
    @Id
    public String id;
    @PartitionKey
    public String city;
    public int amount;
    public int number;
    public String name;
    public boolean paid;
    @Version
    public String _etag;

    public Order() {
    }

    Order(String id, String city, int amount, String name) {
        this.id = id;
        this.city = city;
        this.amount = amount;
        this.number = id.hashCode();
        this.name = name;
        this.paid = amount > 20;
    }
}
