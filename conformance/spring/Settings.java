package conformance;

import com.azure.cosmos.CosmosClientBuilder;
import com.azure.spring.data.cosmos.config.AbstractCosmosConfiguration;
import com.azure.spring.data.cosmos.config.CosmosConfig;
import com.azure.spring.data.cosmos.repository.config.EnableCosmosRepositories;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The settings of the application that the tests are part of. */
@Configuration
@EnableCosmosRepositories
public class Settings extends AbstractCosmosConfiguration {
    static String endpoint;
    static String key;

    @Bean
    public CosmosClientBuilder cosmosClientBuilder() {
        return new CosmosClientBuilder().endpoint(endpoint).key(key).gatewayMode();
    }

    @Bean
    @Override
    public CosmosConfig cosmosConfig() {
        return CosmosConfig.builder().enableQueryMetrics(true).build();
    }

    @Override
    protected String getDatabaseName() {
        return "shop";
    }
}
