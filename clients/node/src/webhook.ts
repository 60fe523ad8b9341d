import { createHmac, timingSafeEqual } from "node:crypto";
import { ChangefeedError } from "./failures.js";

/** Headers as node:http has them, or as fetch has them. */
export type WebhookHeaders = Record<string, string | string[] | undefined> | { get(name: string): string | null };

/** Webhook is a request whose signature is right. */
export interface Webhook {
  id: string;
  /** When it was sent. */
  time: Date;
  body: Uint8Array;
}

const defaultToleranceMs = 5 * 60_000;
const prefix = "whsec_";

/**
 * verifyWebhook checks the signature of a request by Standard Webhooks, which changefeed run -- URL and a webhook
 * publisher send. Give it the body as it has come, before any parser. With several secrets, one has to fit: so a secret
 * can be replaced. It throws a ChangefeedError with the code signature.
 */
export function verifyWebhook(
  secret: string | readonly string[], headers: WebhookHeaders, rawBody: Uint8Array | string,
  toleranceMs = defaultToleranceMs,
): Webhook {
  const id = headerOf(headers, "webhook-id");
  const stamp = headerOf(headers, "webhook-timestamp");
  const signatures = headerOf(headers, "webhook-signature");
  if (!/^\d{1,12}$/.test(stamp)) throw refusal(`the header webhook-timestamp is ${JSON.stringify(stamp)}: want seconds`);
  const time = new Date(Number(stamp) * 1000);
  if (Math.abs(Date.now() - time.getTime()) > toleranceMs) {
    throw refusal(`the webhook is of ${time.toISOString()}: too far from the clock here`);
  }
  const body = typeof rawBody === "string" ? Buffer.from(rawBody) : rawBody;
  const given = signatures.split(" ").filter((s) => s.startsWith("v1,")).map((s) => Buffer.from(s.slice(3), "base64"));
  let isRight = false;
  for (const one of typeof secret === "string" ? [secret] : secret) {
    const expected = createHmac("sha256", keyOf(one)).update(`${id}.${stamp}.`).update(body).digest();
    for (const signature of given) {
      const fits = signature.length === expected.length && timingSafeEqual(signature, expected);
      isRight = fits || isRight;
    }
  }
  if (!isRight) throw refusal("no signature of the webhook is right");
  return { id, time, body };
}

function headerOf(headers: WebhookHeaders, name: string): string {
  let value: string | string[] | null | undefined;
  if (typeof headers.get === "function") {
    value = (headers as { get(name: string): string | null }).get(name);
  } else {
    value = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1] as string | string[] | undefined;
  }
  if (typeof value !== "string" || value === "") throw refusal(`the header ${name} is missing, or there are several`);
  return value;
}

function keyOf(secret: string): Buffer {
  const text = secret.startsWith(prefix) ? secret.slice(prefix.length) : secret;
  const key = Buffer.from(text, "base64");
  if (key.length === 0 || key.toString("base64").replace(/=+$/, "") !== text.replace(/=+$/, "")) {
    throw new ChangefeedError("the secret of a webhook is no base64: want it as openssl rand -base64 32 makes it", "usage");
  }
  return key;
}

const refusal = (text: string) => new ChangefeedError(text, "signature");
