import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

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
    private static final int STOP_LIMIT = 10; // seconds

    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[1]);
        Process server = new ProcessBuilder(args[0], "serve", "--db", dir.resolve("store").toString(),
                "--listen", "127.0.0.1:0", "-o", "json").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        int failed;
        try {
            BufferedReader said = server.inputReader();
            String line = said.readLine();
            if (line == null) {
                throw new IOException("start changefeed serve: it ended with " + server.waitFor());
            }
            JsonNode account = new ObjectMapper().readTree(line);
            trust(Path.of(account.get("certificate").asText()), dir.resolve("trusted.p12"));
            Account.open(account.get("endpoint").asText(), account.get("key").asText(), args[0]);
            failed = test(args.length > 2 ? args[2].toLowerCase() : "");
            Account.close();
            server.destroy(); // SIGTERM
            if (!server.waitFor(STOP_LIMIT, TimeUnit.SECONDS) || server.exitValue() != 0) {
                System.out.println("changefeed serve did not end as it should");
                failed++;
            }
        } finally {
            server.destroyForcibly(); // if it is still there
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    /** trust makes the server's certificate the only one that clients of this process trust. */
    private static void trust(Path certificate, Path file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(certificate)) {
            store.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        try (OutputStream out = Files.newOutputStream(file)) {
            store.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
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
