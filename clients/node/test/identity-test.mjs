// The credential of this process, and the signatures of webhooks.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { processor, startServer, verifyWebhook } from "@changefeed/client";

/** emulatorToken is a token as the emulator's clients make it. */
function emulatorToken(key) {
  const text = (o) => Buffer.from(typeof o === "string" ? o : JSON.stringify(o)).toString("base64url");
  const exp = Math.floor(Date.now() / 1000) + 3600;
  return [text({ typ: "JWT", alg: "RS256" }), text({ oid: "11111111-1111-1111-1111-111111111111", exp }), text(key)].join(".");
}

test("a credential of this process is enough, and its error is said", async (t) => {
  const server = await startServer({ flags: ["--insecure-aad"] });
  t.after(() => server.stop());
  const source = await server.freshContainer({ partitionKey: "/pk" });
  const leases = await server.freshContainer({ partitionKey: "/id" });
  const scopes = [];
  const auth = { getToken: async (scope) => {
    scopes.push(scope);
    return { token: emulatorToken(server.key), expiresOnTimestamp: Date.now() + 3_600_000 };
  } };
  const options = { source: source.address, leases: leases.address, name: "unit", handler() {}, on: { log() {} } };
  const p = processor({ ...options, auth });
  const run = p.run();
  await p.ready;
  await p.caughtUp();
  assert.equal((await p.lag()).total, 0);
  await p.stop();
  await run;
  assert.deepEqual([...new Set(scopes)], [`http://${new URL(server.endpoint).hostname}/.default`]);
  await assert.rejects(p.lag(), { code: "usage" });
  const refused = processor({ ...options, auth: { getToken: async () => { throw new Error("logged out"); } } });
  await assert.rejects(refused.run(), /logged out/);
});

test("an error has a word for its cause", async (t) => {
  const server = await startServer();
  t.after(() => server.stop());
  const source = await server.freshContainer({ partitionKey: "/pk" });
  const options = { source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, handler() {}, on: { log() {} } };
  await processor({ ...options, once: true }).run();
  await assert.rejects(processor({ ...options, from: "now" }).run(), { reason: "start-ignored", code: "usage", hint: /--help/ });
});

// The vector is that of Go's test of package outbox/webhookpub, from the site of Standard Webhooks.
test("the signature of a webhook is checked", () => {
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const headers = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };
  const body = '{"test": 2432232314}';
  assert.equal(verifyWebhook(secret, headers, body, Infinity).id, "msg_p5jXN8AQM9LWM0D4loKWxJek");
  assert.equal(verifyWebhook(["AAAA", secret], new Headers(headers), Buffer.from(body), Infinity).time.getTime(), 1614265330e3);
  assert.equal(verifyWebhook([secret, "AAAA"], headers, body, Infinity).body.toString(), body, "any of the secrets fits");
  const wrong = { code: "signature" };
  assert.throws(() => verifyWebhook(secret, headers, body), wrong, "too old");
  assert.throws(() => verifyWebhook(secret, headers, body + " ", Infinity), wrong);
  assert.throws(() => verifyWebhook("AAAA", headers, body, Infinity), wrong);
  assert.throws(() => verifyWebhook(secret, { ...headers, "Webhook-Id": "other" }, body, Infinity), wrong);
  assert.throws(() => verifyWebhook(secret, { ...headers, "webhook-signature": undefined }, body, Infinity), wrong);
  assert.throws(() => verifyWebhook("no base64!", headers, body, Infinity), { code: "usage" });
  const stamp = String(Math.floor(Date.now() / 1000));
  const sig = createHmac("sha256", Buffer.from("AAAA", "base64")).update(`1.${stamp}.`).digest("base64");
  assert.equal(verifyWebhook("AAAA", { "webhook-id": "1", "webhook-timestamp": stamp, "webhook-signature": `v1,${sig}` }, "").id, "1");
});
