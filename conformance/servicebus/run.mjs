// Has Microsoft's client send and receive through the peer of our tests, which listens at the
// address that is the argument. Go starts it: make conformance-servicebus.

import { ServiceBusClient } from "@azure/service-bus";
import assert from "node:assert/strict";

const [address] = process.argv.slice(2);
const queue = "contacts";
const client = new ServiceBusClient(
  `Endpoint=sb://${address};SharedAccessKeyName=relay;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true`,
  { retryOptions: { maxRetries: 0, timeoutInMs: 10_000 } },
);

const sender = client.createSender(queue);
const message = (session, n, size = 10) => ({
  messageId: `${session}-${n}`, sessionId: session, partitionKey: session, subject: "ThingDone", contentType: "application/json",
  applicationProperties: { "cloudEvents:id": `${session}-${n}` }, body: { n, text: "x".repeat(size) },
});

// A batch, a single message, one of them again, and a large one, in several frames.
const batch = await sender.createMessageBatch();
let n = 0;
while (n < 565 && batch.tryAddMessage(message("Oslo", n + 1))) n++;
await sender.sendMessages(batch);
await sender.sendMessages(message("Oslo", n + 1));
await sender.sendMessages(message("Oslo", 7));
await sender.sendMessages(message("Bergen", 1, 200_000));
const refused = await sender.sendMessages(message("Bergen", 2, 300_000)).then(() => undefined, (err) => err);
assert.equal(refused?.code, "MessageSizeExceeded");
assert.ok(n > 100, `${n} messages in a batch`);

/** drain receives and completes so many messages of a session, and checks their order. */
async function drain(receiver, count) {
  let next = 1;
  while (next <= count) {
    for (const m of await receiver.receiveMessages(100, { maxWaitTimeInMs: 2000 })) {
      assert.equal(m.messageId, `${receiver.sessionId}-${next}`);
      assert.equal(m.body.n, next);
      assert.equal(m.subject, "ThingDone");
      assert.equal(m.applicationProperties["cloudEvents:id"], m.messageId);
      await receiver.completeMessage(m);
      next++;
    }
  }
  await receiver.close();
}

const next = await client.acceptNextSession(queue);
assert.equal(next.sessionId, "Oslo");
await drain(next, n + 1);
await drain(await client.acceptSession(queue, "Bergen"), 1);

await sender.close();
await client.close();
console.log(`${n + 2} messages sent, received in order, completed`);
