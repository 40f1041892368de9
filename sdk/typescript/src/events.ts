/**
 * Events: the agent's part of the audit log, as a stream that continues after a break. Promise: an event is given once,
 * and none is skipped between the first and the last one that is read.
 */
import { SluiceError } from "./errors.js";
import { badAnswer, type FetchTransport, pause, type RequestPlan, unreachable } from "./transport.js";

/** One entry of the audit log. `id` continues the stream after it. */
export interface GatewayEvent {
  id: string;
  type: string;
  data: Record<string, unknown>;
}

export interface EventOptions {
  types?: string[];
  after?: string;
  signal?: AbortSignal;
}

const LONGEST_EVENT = 4 * 1024 * 1024;
/** A heartbeat comes every 15 s. */
const SILENCE_MS = 40_000;

export async function* readEvents(
  transport: FetchTransport,
  options: EventOptions,
): AsyncGenerator<GatewayEvent, void, void> {
  const { attempts } = transport.options.retries;
  const query = options.types?.length ? `?types=${encodeURIComponent(options.types.join(","))}` : "";
  let after = options.after;
  for (let breaks = 1; ; breaks++) {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (after !== undefined) headers["last-event-id"] = after;
    let error: unknown;
    try {
      for await (const event of readOnce(
        transport,
        { method: "GET", path: `/v1/events${query}`, headers },
        options.signal,
      )) {
        breaks = 0;
        if (event === undefined) continue;
        after = event.id;
        yield event;
      }
      error = unreachable("end of stream");
    } catch (caught) {
      error = caught;
    }
    if (options.signal?.aborted) return;
    if (!(error instanceof SluiceError) || !["after", "safe_to_repeat"].includes(error.retry)) throw error;
    if (error.code === "client.bad_answer" || breaks >= attempts) throw error;
    await pause(Math.max(error.retryAfterMs ?? 0, transport.backoff(breaks + 1)), options.signal);
  }
}

/** One stream until it breaks. `undefined` is a sign of life. */
async function* readOnce(
  transport: FetchTransport,
  plan: RequestPlan,
  signal: AbortSignal | undefined,
): AsyncGenerator<GatewayEvent | undefined, void, void> {
  const clock = new AbortController();
  const stop = () => clock.abort();
  signal?.addEventListener("abort", stop, { once: true });
  let timer = setTimeout(stop, SILENCE_MS);
  const decoder = new TextDecoder();
  let rest = "";
  try {
    const response = await transport.open(plan, clock.signal);
    if (!response.body) return;
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      rest += decoder.decode(value, { stream: true });
      if (rest.length > LONGEST_EVENT) throw badAnswer("an event is too large");
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) yield parse(block);
    }
  } catch (error) {
    if (error instanceof SluiceError) throw error;
    throw unreachable(clock.signal.aborted ? "timeout" : "network");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    clock.abort();
  }
}

function parse(block: string): GatewayEvent | undefined {
  const event = { id: "", type: "", data: "" };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") event.id = value;
    else if (name === "event") event.type = value;
    else if (name === "data") event.data += event.data ? `\n${value}` : value;
  }
  if (!event.data) return undefined;
  let data: unknown;
  try {
    data = JSON.parse(event.data);
  } catch {
    throw badAnswer("an event is not JSON");
  }
  if (!event.id || typeof data !== "object" || data === null) throw badAnswer("an event has no id or is not an object");
  return { id: event.id, type: event.type, data: data as Record<string, unknown> };
}
