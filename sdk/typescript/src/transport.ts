/**
 * Sends requests with `fetch`. Promise: a request is repeated only if that cannot act twice, no redirect is followed, an
 * answer has a limit, and no error holds the request (which holds the key).
 */
import {
  CredentialError,
  errorKind,
  InvalidCallError,
  ResponseError,
  SluiceError,
  UnavailableError,
} from "./errors.js";
import type { CallView, ProblemDetails } from "./schema.js";

/** How often, and how long, a client tries again. */
export interface RetryPolicy {
  attempts: number;
  firstPauseMs: number;
  /** The longest advised pause that the client takes by itself. */
  longestPauseMs: number;
}

/** A request to send. */
export interface RequestPlan {
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  /** Whether sending it twice is the same as sending it once. */
  repeatable?: boolean;
  /** How long the gateway may take on purpose. */
  patienceMs?: number;
  withTaskKey?: boolean;
  signal?: AbortSignal | undefined;
}

export interface TransportOptions {
  url: string;
  key: () => string | undefined;
  taskKey: () => string | undefined;
  fetch: typeof fetch;
  timeoutMs: number;
  answerLimit: number;
  retries: RetryPolicy;
  headers?: (() => Record<string, string>) | undefined;
}

/** JSON text; refuses what has no exact JSON form. The error names the kind, never the value. */
export function toJson(value: unknown): string {
  const seen = new Set<object>();
  const check = (part: unknown): void => {
    if (part === null || typeof part === "boolean") return;
    if (typeof part === "string") {
      if (!isWellFormed(part)) throw notJson("a text with half a character");
      return;
    }
    if (typeof part === "number") {
      if (!Number.isFinite(part)) throw notJson("a number that is not finite");
      if (Number.isInteger(part) && !Number.isSafeInteger(part)) throw notJson("a number that would lose digits");
      return;
    }
    if (typeof part !== "object") throw notJson(`a ${typeof part}`);
    if (seen.has(part)) throw notJson("an object that contains itself");
    seen.add(part);
    if (Array.isArray(part)) for (const item of part) check(item);
    else {
      const kind = Object.getPrototypeOf(part);
      if (kind !== null && kind !== Object.prototype && Object.getPrototypeOf(kind) !== null) {
        throw notJson("an object of a class");
      }
      for (const [name, item] of Object.entries(part)) {
        check(name);
        // Like JSON.stringify: a member without a value is left out.
        if (item !== undefined) check(item);
      }
    }
    seen.delete(part);
  };
  try {
    check(value);
  } catch (error) {
    throw error instanceof SluiceError ? error : notJson("a value that cannot be read");
  }
  return JSON.stringify(value);
}

function notJson(what: string): InvalidCallError {
  return new InvalidCallError(`the arguments have no JSON form: ${what}`, {
    code: "client.not_json",
    hint: "pass text, numbers, booleans, lists and plain objects",
    retry: "after_change",
  });
}

function isWellFormed(text: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

/** Waits, unless the caller gives up. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

export function badAnswer(text: string): ResponseError {
  return new ResponseError(text, {
    code: "client.bad_answer",
    hint: "check that the address is that of a Sluicegate gateway; a repeated call with the same key is safe",
    retry: "safe_to_repeat",
  });
}

/** The object that an answer holds, with the text members that it must have. */
export function decode<T>(text: string, members: readonly string[]): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw badAnswer("the answer is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw badAnswer("the answer is no object");
  for (const member of members) {
    if (typeof (value as Record<string, unknown>)[member] !== "string")
      throw badAnswer(`the answer has no \`${member}\``);
  }
  return value as T;
}

/** The error of a call that ended without its effect. */
export function callError(view: CallView, status?: number): SluiceError {
  const code = view.code ?? `call.${view.status}`;
  let kind = errorKind(code, status);
  if (view.status === "in_doubt" || view.status === "needs_human") kind = errorKind("execute.needs_human", undefined);
  else if (kind === SluiceError) kind = errorKind("hold.dead", undefined);
  const final = ["policy.blocked", "approval.denied", "hold.cancelled", "execute.in_doubt"].includes(code);
  return new kind(view.reason ?? `the call is ${view.status}`, {
    code,
    hint: view.hint ?? undefined,
    retry: final ? "never" : "after_person",
    status,
    callId: view.call_id,
    rule: view.rule ?? undefined,
  });
}

function problem(status: number, kind: string, text: string, retryAfter: string | null): SluiceError {
  if (kind.startsWith("application/json")) return callError(decode<CallView>(text, ["call_id", "status"]), status);
  const seconds = retryAfter !== null && /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : undefined;
  if (!kind.startsWith("application/problem+json")) {
    return new (status >= 500 ? UnavailableError : ResponseError)(
      `the answer with status ${status} is not one of a gateway`,
      {
        code: "client.bad_answer",
        hint: "check the address, and what stands between client and gateway",
        retry: status >= 500 ? "safe_to_repeat" : "after_change",
        retryAfterMs: seconds,
        status,
      },
    );
  }
  const told = decode<ProblemDetails>(text, ["code", "detail", "hint", "retry"]);
  return new (errorKind(told.code, status))(told.detail, {
    code: told.code,
    hint: told.hint,
    retry: told.retry,
    retryAfterMs: told.retry_after_ms ?? seconds,
    status,
    callId: told.call_id ?? undefined,
    rule: told.rule ?? undefined,
    other: told.other ?? undefined,
    requestId: told.request_id ?? undefined,
  });
}

/** Sends requests to one gateway. */
export class FetchTransport {
  readonly options: TransportOptions;

  constructor(options: TransportOptions) {
    this.options = options;
  }

  /** Sends a request, again where that is safe. Gives the text of an answer below 400, or throws. */
  async send(plan: RequestPlan): Promise<string> {
    const { attempts, longestPauseMs } = this.options.retries;
    // Once, before anything is sent: the same bytes are sent each time.
    const body = plan.body === undefined ? undefined : toJson(plan.body);
    for (let attempt = 1; ; attempt++) {
      const error = await this.attempt(plan, body);
      if (typeof error === "string") return error;
      const mayRepeat = (plan.repeatable ?? true) && ["after", "safe_to_repeat"].includes(error.retry);
      const isAdvised = error.retry !== "after" || error.retryAfterMs !== undefined;
      const wait = Math.max(error.retryAfterMs ?? 0, this.backoff(attempt));
      const isBroken = error instanceof ResponseError;
      if (!mayRepeat || !isAdvised || isBroken || attempt >= attempts || wait > longestPauseMs) throw error;
      await pause(wait, plan.signal);
    }
  }

  backoff(attempt: number): number {
    const { firstPauseMs, longestPauseMs } = this.options.retries;
    return Math.min(firstPauseMs * 2 ** (attempt - 1), longestPauseMs) * (0.5 + Math.random() / 2);
  }

  /** Opens a stream. */
  async open(plan: RequestPlan, signal: AbortSignal): Promise<Response> {
    const response = await this.fetch(plan, undefined, signal);
    if (response.ok) return response;
    throw problem(
      response.status,
      response.headers.get("content-type") ?? "",
      await this.text(response),
      response.headers.get("retry-after"),
    );
  }

  private async attempt(plan: RequestPlan, body: string | undefined): Promise<string | SluiceError> {
    const clock = new AbortController();
    const timer = setTimeout(() => clock.abort(), this.options.timeoutMs + (plan.patienceMs ?? 0));
    const stop = () => clock.abort();
    if (plan.signal?.aborted) throw plan.signal.reason;
    plan.signal?.addEventListener("abort", stop, { once: true });
    try {
      const response = await this.fetch(plan, body, clock.signal);
      const text = await this.text(response);
      if (response.ok) return text;
      const kind = response.headers.get("content-type") ?? "";
      return problem(response.status, kind, text, response.headers.get("retry-after"));
    } catch (error) {
      if (plan.signal?.aborted) throw plan.signal.reason;
      if (error instanceof ResponseError) return error;
      if (error instanceof SluiceError) throw error;
      return unreachable(clock.signal.aborted ? "timeout" : "network");
    } finally {
      clearTimeout(timer);
      plan.signal?.removeEventListener("abort", stop);
    }
  }

  private async fetch(plan: RequestPlan, body: string | undefined, signal: AbortSignal): Promise<Response> {
    const key = plan.withTaskKey ? this.options.taskKey() : this.options.key();
    if (key === undefined) {
      throw new CredentialError(plan.withTaskKey ? "the client has no task key" : "the client has no agent key", {
        code: "client.no_key",
        hint: "pass `key`, or set SLUICE_AGENT_KEY",
        retry: "after_change",
      });
    }
    const headers: Record<string, string> = {
      ...this.options.headers?.(),
      ...plan.headers,
      authorization: `Bearer ${key}`,
    };
    if (body !== undefined) headers["content-type"] = "application/json";
    const send = this.options.fetch;
    const init: RequestInit = { method: plan.method, headers, redirect: "manual", signal };
    if (body !== undefined) init.body = body;
    return send(this.options.url + plan.path, init);
  }

  private async text(response: Response): Promise<string> {
    if (!response.body) return "";
    const length = Number(response.headers.get("content-length") ?? "0");
    if (length > this.options.answerLimit) {
      await response.body.cancel();
      throw badAnswer("the answer is larger than `answerLimit`");
    }
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text + decoder.decode();
      size += value.byteLength;
      if (size > this.options.answerLimit) {
        await reader.cancel();
        throw badAnswer("the answer is larger than `answerLimit`");
      }
      text += decoder.decode(value, { stream: true });
    }
  }
}

/** The error of a request without an answer. The cause is left out: it could hold the request. */
export function unreachable(kind: string): UnavailableError {
  return new UnavailableError(`the gateway did not answer (${kind})`, {
    code: "client.unreachable",
    hint: "check that the gateway runs; repeat the call with the same idempotency key",
    retry: "safe_to_repeat",
  });
}
