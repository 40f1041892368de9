// What goes wrong between client and gateway, and in what a program passes in.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { afterEach, test } from "node:test";
import * as sluice from "../dist/index.js";

const { SluiceClient } = sluice;
const DONE = { call_id: "call_1", status: "done", result: null };
const servers = [];

/** A server that gives scripted answers and remembers what it was sent. */
async function scripted(...answers) {
  const seen = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => {
      body += data;
    });
    request.on("end", () => {
      seen.push({ url: request.url, headers: request.headers, body });
      const answer = answers.shift() ?? [200, DONE];
      if (answer === "hang up") return request.socket.destroy();
      if (answer === "silence") return;
      const [status, content, type = "application/json", headers = {}] = answer;
      response.writeHead(status, { "content-type": type, ...headers });
      response.end(typeof content === "string" || content instanceof Uint8Array ? content : JSON.stringify(content));
    });
  });
  servers.push(server);
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const retries = { attempts: 4, firstPauseMs: 5, longestPauseMs: 300 };
  const url = `http://127.0.0.1:${server.address().port}`;
  return { seen, url, client: new SluiceClient({ url, key: "sga_topsecret", timeoutMs: 300, retries }) };
}
const problem = (status, code, retry, more = {}) => [
  status,
  { type: "urn:x", title: "t", status, detail: "d", code, hint: "h", retry, ...more },
  "application/problem+json",
];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

test("a lost answer is asked for again under the same key, and two calls have two keys", async () => {
  const { client, seen } = await scripted("hang up", "hang up");
  assert.equal((await client.call("email.send")).status, "done");
  await client.call("email.send");
  const keys = seen.map(({ body }) => JSON.parse(body).idempotency_key);
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
  assert.equal(new Set(keys).size, 2);
});

test("a slow gateway and no gateway end in an error that says so", async () => {
  const { url, seen } = await scripted("silence", "silence", "silence");
  const slow = new SluiceClient({ url, key: "sga_x", timeoutMs: 50, retries: { attempts: 2, firstPauseMs: 5 } });
  await assert.rejects(
    slow.whoami(),
    (error) => error instanceof sluice.UnavailableError && /timeout/.test(error.message),
  );
  assert.equal(seen.length, 2);
  const none = new SluiceClient({
    url: "http://127.0.0.1:9",
    key: "sga_topsecret",
    retries: { attempts: 2, firstPauseMs: 1 },
  });
  const error = await none.call("email.send", { body: "hunter2" }).catch((caught) => caught);
  assert.ok(error instanceof sluice.UnavailableError);
  const { inspect } = await import("node:util");
  for (const text of [
    inspect(error, { depth: 9, showHidden: true }),
    inspect(none, { depth: 9 }),
    JSON.stringify(none),
  ]) {
    assert.doesNotMatch(text, /topsecret|hunter2/);
  }
});

test("what must not be repeated is sent once, and advice is followed within the limit", async () => {
  for (const advice of ["never", "after_change", "after_person", "after", "something_new"]) {
    const { client, seen } = await scripted(problem(503, "gateway.new_code", advice));
    await assert.rejects(client.call("email.send"), (error) => error.code === "gateway.new_code");
    assert.equal(seen.length, 1, advice);
  }
  const { client, seen } = await scripted(problem(429, "door.too_many", "after", { retry_after_ms: 20 }));
  assert.equal((await client.call("email.send")).status, "done");
  assert.equal(seen.length, 2);
  const later = await scripted(problem(429, "hold.queue_full", "after", { retry_after_ms: 60_000 }));
  await assert.rejects(
    later.client.call("email.send"),
    (error) => error instanceof sluice.RateLimitedError && error.retryAfterMs === 60_000,
  );
  assert.equal(later.seen.length, 1);
});

test("a session is not opened twice", async () => {
  const { client, seen } = await scripted("hang up");
  await assert.rejects(client.sessions.open(), sluice.UnavailableError);
  assert.equal(seen.length, 1);
});

test("broken answers are never taken for an answer", async () => {
  const broken = [
    "",
    "{",
    "[]",
    "null",
    '"text"',
    '{"call_id":1,"status":"done"}',
    '{"call_id":"c"}',
    "[".repeat(5000),
  ];
  for (const text of broken) {
    const { client } = await scripted([200, text]);
    await assert.rejects(client.call("email.send"), sluice.ResponseError, text);
  }
  const page = await scripted(
    [200, "<html>", "text/html"],
    [302, "", "text/html", { location: "http://127.0.0.1:9/" }],
  );
  await assert.rejects(page.client.whoami(), sluice.ResponseError);
  await assert.rejects(page.client.whoami(), sluice.SluiceError);
  const large = await scripted([200, { ...DONE, result: "x".repeat(100_000) }]);
  const small = new SluiceClient({ url: large.url, key: "sga_x", answerLimit: 10_000 });
  await assert.rejects(small.call("email.read"), sluice.ResponseError);
});

test("an unknown status does not count as allowed", async () => {
  for (const status of ["done", "observed", "", "ALLOWED", "held"]) {
    const { client } = await scripted([200, { ...DONE, status }]);
    let ran = false;
    await assert.rejects(client.gate("x", () => (ran = true))({}), sluice.SluiceError);
    assert.ok(!ran, status);
  }
});

test("arguments without a JSON form are refused before anything is sent", async () => {
  const { client, seen } = await scripted();
  const loop = {};
  loop.loop = loop;
  class Opaque {}
  for (const value of [
    Number.NaN,
    1 / 0,
    2 ** 60,
    1n,
    () => 1,
    Symbol("a"),
    new Opaque(),
    new Date(),
    new Map(),
    "\ud800",
    loop,
  ]) {
    await assert.rejects(client.call("email.send", { value }), (error) => error.code === "client.not_json");
  }
  assert.equal(seen.length, 0);
});

test("a cut stream continues after the last event", async () => {
  const event = (n) => `id: n:${n}\nevent: hold.done\ndata: {"n":${n}}\n\n`;
  const stream = (text) => [200, text, "text/event-stream"];
  const { client, seen } = await scripted(stream(`${event(1)}id: n:2\nevent: ho`), stream(event(2) + event(3)));
  const events = client.events({ types: ["hold.*"] });
  const read = [];
  for (let n = 0; n < 3; n++) read.push((await events.next()).value.data.n);
  await events.return();
  assert.deepEqual(read, [1, 2, 3]);
  assert.equal(seen[1].headers["last-event-id"], "n:1");
  const odd = await scripted(stream("id: 1\ndata: {\n\n"));
  await assert.rejects(odd.client.events().next(), sluice.ResponseError);
});

test("a signal ends a wait and a function that never returns does not block the client", async () => {
  const { client } = await scripted([200, { call_id: "call_1", status: "held" }], "silence");
  const held = await client.call("email.send");
  await assert.rejects(held.wait({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
});

test("no address without a scheme, no key with odd characters", () => {
  assert.throws(() => new SluiceClient({ url: "127.0.0.1:7420", key: "x" }), sluice.InvalidCallError);
  for (const key of ["sga_a b", "sga_ü", " "]) assert.throws(() => new SluiceClient({ key }), sluice.InvalidCallError);
});

test("without a gateway a gated function does not run", async () => {
  const client = new SluiceClient({ url: "http://127.0.0.1:9", key: "sga_x", retries: { attempts: 1 } });
  let ran = false;
  await assert.rejects(client.gate("x", () => (ran = true))({}), sluice.UnavailableError);
  assert.ok(!ran);
});

test("webhooks are verified", async () => {
  // The example of the Standard Webhooks specification.
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const body = '{"test": 2432232314}';
  const headers = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "Webhook-Timestamp": "1614265330",
    "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };
  const at = (seconds) => ({ now: new Date((1614265330 + seconds) * 1000) });
  assert.equal(await sluice.verifyWebhook(headers, body, secret, at(0)), headers["webhook-id"]);
  assert.ok(
    await sluice.verifyWebhook(new Headers(headers), new TextEncoder().encode(body), ["whsec_AAAA", secret], at(299)),
  );
  const bad = [
    [headers, `${body} `, 0],
    [headers, body, 301],
    [headers, body, -301],
    [{ ...headers, "webhook-id": "other" }, body, 0],
    [{ ...headers, "webhook-signature": "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" }, body, 0],
    [{ ...headers, "webhook-signature": "" }, body, 0],
    [{}, body, 0],
  ];
  for (const [given, text, seconds] of bad) {
    await assert.rejects(sluice.verifyWebhook(given, text, secret, at(seconds)), sluice.WebhookError);
  }
  for (const odd of ["whsec_", "whsec_!!", ""]) {
    await assert.rejects(sluice.verifyWebhook(headers, body, odd, at(0)), sluice.WebhookError);
  }
});
