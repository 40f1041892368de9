/**
 * Gates around own functions: check, run, report. Promise: a function runs only after the gateway allowed exactly its
 * argument, and a function whose outcome is not known is not run again.
 */
import type { OnApproval, SluiceClient } from "./client.js";
import {
  AlreadyFinishedError,
  ConflictError,
  ContentWithheldError,
  InvalidCallError,
  OutcomeUnknownError,
  ReportError,
  SluiceError,
} from "./errors.js";
import { toJson } from "./transport.js";

/** Claims operations, so that each runs once, also across crashes and processes. */
export interface OperationLedger {
  /** `undefined`: it was claimed now and may run. Otherwise it ran before, with this result. */
  claim(operation: string, client: SluiceClient): Promise<FinishedRun | undefined>;
  finish(operation: string, result: unknown, client: SluiceClient): Promise<void>;
}

/** An operation that ran to its end before; `result` is missing if it could not be stored. */
export interface FinishedRun {
  state: "finished";
  result?: unknown;
}

export interface GateOptions<A> {
  /** Names a run by its argument; an operation runs once. */
  operation?: (args: A) => string;
  onApproval?: OnApproval;
  deadlineMs?: number;
  /** How the result is reported in a session: `false` where no agent sees it, or a function that gives its text. */
  report?: boolean | ((result: unknown) => string);
  reason?: string;
  ledger?: OperationLedger;
  signal?: AbortSignal;
}

const LONGEST_REPORT = 700_000;

async function digest(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0"))
    .join("")
    .slice(0, 48);
}

/** The idempotency key of an operation of a gated function. */
export async function operationKey(capability: string, operation: string): Promise<string> {
  return `gate-${await digest(`${capability}\0${operation}`)}`;
}

/** `custom:<name>` for a bare name. */
export function capabilityOf(name: string): string {
  return name.startsWith("custom:") ? name : `custom:${name}`;
}

/** Claims in the agent's own state at the gateway: `state.persistent`, which the rules must allow. */
export class GatewayLedger implements OperationLedger {
  async claim(operation: string, client: SluiceClient): Promise<FinishedRun | undefined> {
    const name = await this.#name(operation);
    // Idempotency keys end after 30 days; the entry does not.
    if ((await this.#get(client, name)) === undefined) {
      // Each run writes a value of its own under one idempotency key: only the first one is that call.
      try {
        await this.#set(client, name, { state: "begun", run: crypto.randomUUID() }, `claim-${name}`);
        return undefined;
      } catch (error) {
        if (!(error instanceof ConflictError && error.code === "call.key_reuse")) throw error;
      }
    }
    const stored = await this.#get(client, `${name}/finished`);
    if (stored && typeof stored === "object") return stored as FinishedRun;
    throw new OutcomeUnknownError("the operation was begun before, and how it ended is not known", {
      code: "client.outcome_unknown",
      hint: "it may have happened: do not run it again; a person looks at what it changed",
      retry: "after_person",
      other: operation,
    });
  }

  async finish(operation: string, result: unknown, client: SluiceClient): Promise<void> {
    let stored: FinishedRun = { state: "finished" };
    try {
      if (result !== undefined && toJson(result).length <= 65_536) stored = { state: "finished", result };
    } catch {
      // A result without a JSON form is not stored; its run is.
    }
    const name = await this.#name(operation);
    await this.#set(client, `${name}/finished`, stored, `finish-${name}`);
  }

  async #name(operation: string): Promise<string> {
    return `sluicegate/once/${await digest(operation)}`;
  }

  async #get(client: SluiceClient, key: string): Promise<unknown> {
    const call = await client.call<{ value?: unknown } | null>("state.persistent.get", { key });
    if (call.status !== "done") throw noLedger(call.callId);
    return call.result?.value ?? undefined;
  }

  async #set(client: SluiceClient, key: string, value: unknown, idempotencyKey: string): Promise<void> {
    const call = await client.call("state.persistent.set", { key, value }, { idempotencyKey, onApproval: "park" });
    if (call.status === "awaiting_approval") throw noLedger(call.callId);
    await call.wait({ timeoutMs: 30_000 });
  }
}

function noLedger(callId: string): InvalidCallError {
  return new InvalidCallError("the ledger needs approval for its own entry, so the operation is not run", {
    code: "client.ledger",
    hint: "allow `state.persistent.*` for this agent, or pass another ledger",
    retry: "after_person",
    callId,
  });
}

/** One run of a gated function, between permission and report. */
export class GateRun<A extends Record<string, unknown>> {
  readonly #client: SluiceClient;
  readonly #capability: string;
  readonly #args: A;
  readonly #options: GateOptions<A>;
  readonly #isResumed: boolean;
  readonly #ledger: OperationLedger;
  #callId: string | undefined;
  #operation: string | undefined;

  constructor(client: SluiceClient, capability: string, args: A, options: GateOptions<A>, isResumed = false) {
    this.#client = client;
    this.#capability = capability;
    this.#args = args;
    this.#options = options;
    this.#isResumed = isResumed;
    this.#ledger = options.ledger ?? new GatewayLedger();
  }

  async run(fn: (args: A) => unknown): Promise<unknown> {
    const finished = await this.#enter();
    if (finished) return this.#report(this.#resultOf(finished));
    const result = await fn(this.#args);
    await this.#finish(result);
    return this.#report(result);
  }

  async *stream(fn: (args: A) => AsyncIterable<unknown>): AsyncGenerator<unknown, void, void> {
    const finished = await this.#enter();
    const given: unknown[] = [];
    for await (const item of finished ? (this.#resultOf(finished) as unknown[]) : fn(this.#args)) {
      if (this.#operation !== undefined) given.push(item);
      yield await this.#report(item);
    }
    if (!finished) await this.#finish(given);
  }

  async #enter(): Promise<FinishedRun | undefined> {
    const { operation, ...rest } = this.#options;
    this.#operation = operation?.(this.#args);
    if (this.#operation === "") {
      throw new InvalidCallError("the operation key is empty", {
        code: "client.operation",
        hint: "name the operation",
      });
    }
    const pass = await this.#client.check(this.#capability, this.#args, { ...rest, operation: this.#operation });
    this.#callId = pass.callId;
    if (this.#operation !== undefined) {
      const finished = await this.#ledger.claim(`${this.#capability}\0${this.#operation}`, this.#client);
      if (finished && this.#isResumed) throw this.#refusal(finished);
      if (finished) return finished;
    }
    // SECURITY: what runs is what was checked, also if somebody changed an object while a person decided.
    if (toJson(this.#args) !== pass.body) {
      throw new InvalidCallError("the arguments changed after they were checked, so the function is not run", {
        code: "client.arguments_changed",
        hint: "do not change objects that are passed to a gated function",
        retry: "after_change",
        callId: pass.callId,
      });
    }
    return undefined;
  }

  #resultOf(finished: FinishedRun): unknown {
    if (!("result" in finished)) throw this.#refusal(finished);
    return finished.result;
  }

  #refusal(finished: FinishedRun): AlreadyFinishedError {
    const error = new AlreadyFinishedError("the operation has run before and is not run again", {
      code: "client.finished",
      hint: "do not run it again; `result` has what it returned, if that could be stored",
      callId: this.#callId,
      other: this.#operation,
    });
    error.result = finished.result;
    return error;
  }

  async #finish(result: unknown): Promise<void> {
    if (this.#operation === undefined) return;
    await this.#ledger.finish(`${this.#capability}\0${this.#operation}`, result, this.#client);
  }

  async #report(result: unknown): Promise<unknown> {
    const how = this.#options.report ?? true;
    const session = this.#client.sessionId;
    if (session === undefined || how === false || result === undefined || result === null) return result;
    const text = this.#text(result, how);
    let seen: Awaited<ReturnType<ReturnType<SluiceClient["sessions"]["join"]>["observe"]>>;
    try {
      seen = await this.#client.sessions.join(session).observe(this.#capability, text);
    } catch (error) {
      if (error instanceof SluiceError) throw this.#unreported(`the result could not be reported [${error.code}]`);
      throw error;
    }
    if (seen.verdict === "pass") return typeof result === "string" && how === true ? seen.text : result;
    throw new ContentWithheldError(
      "the function ran, and its result is withheld because it looks like an attack on agents",
      {
        code: "content.withheld",
        hint: "go on without the result; your user can look at it and release it",
        retry: "after_person",
        callId: this.#callId,
        other: seen.finding_id ?? undefined,
      },
    );
  }

  #text(result: unknown, how: true | ((result: unknown) => string)): string {
    let text: string;
    try {
      text = how === true ? (typeof result === "string" ? result : toJson(result)) : how(result);
    } catch (error) {
      if (error instanceof SluiceError) throw this.#unreported("the result has no JSON form");
      throw error;
    }
    if (text.length > LONGEST_REPORT) throw this.#unreported("the result is too large to be reported");
    return text;
  }

  #unreported(why: string): ReportError {
    return new ReportError(`the function ran, but ${why}, so the result is not shown`, {
      code: "client.report",
      hint: "do not run it again; pass a `report` function, or report: false where no agent sees the result",
      callId: this.#callId,
    });
  }
}
