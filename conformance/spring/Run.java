package conformance;

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
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;

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
            Settings.endpoint = account.get("endpoint").asText();
            Settings.key = account.get("key").asText();
            try (var context = new AnnotationConfigApplicationContext(Settings.class)) {
                failed = test(context);
            }
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
