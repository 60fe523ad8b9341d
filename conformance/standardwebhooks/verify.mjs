// Verifies the requests on standard input, one JSON object a line, with the library for Standard Webhooks from npm.
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";

for await (const line of createInterface({ input: process.stdin })) {
  const { Secret, Body, Headers } = JSON.parse(line);
  try {
    new Webhook(Secret).verify(Body, Headers);
    console.log("ok");
  } catch (err) {
    if (err.name !== "WebhookVerificationError" && err.constructor.name !== "WebhookVerificationError") throw err;
    console.log("refused");
  }
}
