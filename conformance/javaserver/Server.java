package conformance.javaserver;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * The server of the Java programs: a new store, served on a free port with a certificate of its own. The clients of
 * this process trust this certificate alone.
 */
public final class Server implements AutoCloseable {
    private static final int STOP_LIMIT = 10; // seconds
    private static final String PASSWORD = "changeit"; // of the file of the certificate

    private final Process process;
    private final JsonNode account;

    /** Starts the binary changefeed with a store in an empty directory. */
    public Server(String changefeed, Path dir) throws Exception {
        process = new ProcessBuilder(changefeed, "serve", "--db", dir.resolve("store").toString(),
                "--listen", "127.0.0.1:0", "-o", "json").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            String line = process.inputReader().readLine();
            if (line == null) {
                throw new IOException("start changefeed serve: it ended with " + process.waitFor());
            }
            account = new ObjectMapper().readTree(line);
            trust(Path.of(account.get("certificate").asText()), dir.resolve("trusted.p12"));
        } catch (Exception e) {
            close();
            throw e;
        }
    }

    public String endpoint() {
        return account.get("endpoint").asText();
    }

    public String key() {
        return account.get("key").asText();
    }

    /** Ends the server with SIGTERM, and reports whether it ended in time and without an error. */
    public boolean end() throws InterruptedException {
        process.destroy();
        return process.waitFor(STOP_LIMIT, TimeUnit.SECONDS) && process.exitValue() == 0;
    }

    /** Kills the server if it is still there. */
    @Override
    public void close() {
        process.destroyForcibly();
    }

    private static void trust(Path certificate, Path file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(certificate)) {
            store.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        try (OutputStream out = Files.newOutputStream(file)) {
            store.store(out, PASSWORD.toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", PASSWORD);
    }
}
