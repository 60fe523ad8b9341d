package conformance;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;

import org.springframework.context.annotation.AnnotationConfigApplicationContext;

import conformance.javaserver.Server;

/**
 * Runs Spring Data for Azure Cosmos DB, unmodified, against this server: serves a new store on a free port with a
 * certificate of its own, runs the tests of Repositories against it, and stops it. No registry has the library's own
 * tests.
 *
 * <pre>
 * java conformance.Run CHANGEFEED DIR    CHANGEFEED is the binary, DIR an empty directory
 * </pre>
 *
 * The last line is such as "20 passed, 0 failed", and the status 1 unless every test passed.
 */
public final class Run {
    public static void main(String[] args) throws Exception {
        int failed;
        try (Server server = new Server(args[0], Path.of(args[1]))) {
            Settings.endpoint = server.endpoint();
            Settings.key = server.key();
            try (var context = new AnnotationConfigApplicationContext(Settings.class)) {
                failed = test(context);
            }
            if (!server.end()) {
                System.out.println("changefeed serve did not end as it should");
                failed++;
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    /** test runs the tests, each on an empty container, shows what fails, and returns how many did. */
    private static int test(AnnotationConfigApplicationContext context) throws Exception {
        Orders orders = context.getBean(Orders.class);
        Repositories tests = new Repositories(orders, context.getBean("cosmosTemplate",
                com.azure.spring.data.cosmos.core.CosmosTemplate.class));
        Method[] all = Repositories.class.getDeclaredMethods();
        Arrays.sort(all, Comparator.comparing(Method::getName));
        int passed = 0;
        int failed = 0;
        for (Method test : all) {
            if (!Modifier.isPublic(test.getModifiers()) || test.getParameterCount() > 0) {
                continue;
            }
            orders.deleteAll();
            try {
                test.invoke(tests);
                passed++;
            } catch (InvocationTargetException e) {
                failed++;
                System.out.println("FAIL " + test.getName());
                e.getCause().printStackTrace(System.out);
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        return passed == 0 ? 1 : failed;
    }
}
