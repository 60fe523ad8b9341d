import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

import conformance.javaserver.Server;

/**
 * Runs the Java SDK, unmodified, against this server: serves a new store on a free port with a
 * certificate of its own, runs the tests against it, and stops it.
 *
 * <pre>
 * java Run CHANGEFEED DIR          all the tests; CHANGEFEED is the binary, DIR an empty directory
 * java Run CHANGEFEED DIR query    those whose names contain "query"
 * </pre>
 *
 * A test is a public method without parameters of one of the classes below. The last line is such as
 * "40 passed, 0 failed", and the status 1 unless every test passed.
 */
public final class Run {
    private static final List<Class<?>> THEMES =
            List.of(Items.class, Queries.class, Batches.class, Feeds.class, Processors.class, Resources.class);

    public static void main(String[] args) throws Exception {
        int failed;
        try (Server server = new Server(args[0], Path.of(args[1]))) {
            Account.open(server.endpoint(), server.key(), args[0]);
            failed = test(args.length > 2 ? args[2].toLowerCase() : "");
            Account.close();
            if (!server.end()) {
                System.out.println("changefeed serve did not end as it should");
                failed++;
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    /** test runs the tests whose names contain a word, shows what fails, and returns how many did. */
    private static int test(String only) throws Exception {
        int passed = 0;
        int failed = 0;
        for (Class<?> theme : THEMES) {
            Method[] tests = theme.getDeclaredMethods();
            Arrays.sort(tests, Comparator.comparing(Method::getName));
            for (Method test : tests) {
                String name = theme.getSimpleName() + "." + test.getName();
                boolean isTest = Modifier.isPublic(test.getModifiers()) && test.getParameterCount() == 0;
                if (!isTest || !name.toLowerCase().contains(only)) {
                    continue;
                }
                try {
                    test.invoke(theme.getDeclaredConstructor().newInstance());
                    passed++;
                } catch (InvocationTargetException e) {
                    failed++;
                    System.out.println("FAIL " + name);
                    e.getCause().printStackTrace(System.out);
                }
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        return passed == 0 ? 1 : failed;
    }
}
