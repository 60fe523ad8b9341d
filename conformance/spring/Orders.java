package conformance;

import com.azure.spring.data.cosmos.repository.CosmosRepository;
import com.azure.spring.data.cosmos.repository.Query;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.repository.query.Param;

import java.util.List;

/** The repository of the tests: its queries are made of the names of its methods. */
public interface Orders extends CosmosRepository<Order, String> {
    List<Order> findByCityOrderByAmountDesc(String city);

    List<Order> findByCityAndAmountGreaterThan(String city, int amount);

    List<Order> findByNameOrAmount(String name, int amount, Sort sort);

    List<Order> findByAmountBetween(int least, int most, Sort sort);

    List<Order> findByNameIn(List<String> names, Sort sort);

    List<Order> findByNameNotIn(List<String> names, Sort sort);

    List<Order> findByNameStartsWithIgnoreCase(String start, Sort sort);

    List<Order> findByNameContaining(String part, Sort sort);

    List<Order> findByPaidTrue(Sort sort);

    List<Order> findByNameIsNull();

    List<Order> findTop2ByCity(String city, Sort sort);

    Page<Order> findByPaid(boolean paid, Pageable page);

    long countByCity(String city);

    boolean existsByName(String name);

    void deleteByCity(String city);

    @Query("SELECT VALUE SUM(c.amount) FROM c WHERE c.city = @city")
    List<Long> sumOf(@Param("city") String city);

    @Query("SELECT * FROM c WHERE c.amount >= @least ORDER BY c.amount")
    Slice<Order> atLeast(@Param("least") int least, Pageable page);

    @Query("SELECT DISTINCT VALUE c.city FROM c WHERE ARRAY_CONTAINS(@cities, c.city)")
    List<String> citiesAmong(@Param("cities") List<String> cities);
}
