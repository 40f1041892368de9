/**
 * Verifies signed webhooks (Standard Webhooks, symmetric signatures `v1`). Promise: a body is trusted only with a
 * signature of the secret over exactly these bytes and a fresh timestamp.
 */

/** The request is not one of the owner of the secret, or too old. */
export class WebhookError extends Error {
  override name = "WebhookError";
}

export interface WebhookOptions {
  /** How far the timestamp may be from the present time. */
  toleranceSec?: number;
  /** The present time, for tests. */
  now?: Date;
}

type HeaderSource = Headers | Record<string, string | string[] | undefined>;

function header(headers: HeaderSource, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return typeof found === "string" ? found : "";
}

function bytes(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** Checks signature and time of a webhook, and gives its id. Several secrets while one is rotated. */
export async function verifyWebhook(
  headers: HeaderSource,
  body: string | Uint8Array,
  secrets: string | string[],
  options: WebhookOptions = {},
): Promise<string> {
  const id = header(headers, "webhook-id");
  const stamp = header(headers, "webhook-timestamp");
  if (!id || !/^\d{1,12}$/.test(stamp))
    throw new WebhookError("the headers webhook-id and webhook-timestamp are missing or malformed");
  const now = (options.now ?? new Date()).getTime() / 1000;
  if (!(Math.abs(now - Number(stamp)) <= (options.toleranceSec ?? 300))) {
    throw new WebhookError("the timestamp is too far from the present time");
  }
  const prefix = new TextEncoder().encode(`${id}.${stamp}.`);
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const signed = new Uint8Array(prefix.length + content.length);
  signed.set(prefix);
  signed.set(content, prefix.length);
  const given = header(headers, "webhook-signature")
    .split(" ")
    .filter((part) => part.startsWith("v1,"));
  let isValid = false;
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const raw = bytes(secret.replace(/^whsec_/, ""));
    if (!raw?.length) throw new WebhookError("the secret is not `whsec_` with base64");
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const part of given) {
      const signature = bytes(part.slice(3));
      // Compared in constant time by the runtime.
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, signed))) isValid = true;
    }
  }
  if (!isValid) throw new WebhookError("no signature fits");
  return id;
}
