/**
 * The client. Promise: a call that the gateway did not allow throws; a call is sent again only under its own idempotency
 * key; the decision is always the gateway's.
 */
import {
  ApprovalRequiredError,
  ConflictError,
  DeniedError,
  InvalidCallError,
  NotDoneError,
  ParkedCallError,
  WaitTimeoutError,
} from "./errors.js";
import { type GatewayEvent, readEvents } from "./events.js";
import { capabilityOf, type GateOptions, GateRun, operationKey } from "./gate.js";
import type {
  CallOptions,
  CallView,
  GateReceiptView,
  GateRequestBody,
  GateRequestView,
  ObservationView,
  SessionView,
} from "./schema.js";
import { callError, decode, FetchTransport, pause, type RetryPolicy, toJson } from "./transport.js";

/** What happens to a call that needs a person: it waits, is parked, or is withdrawn. */
export type OnApproval = "wait" | "park" | "deny";

export interface ClientOptions {
  /** Address of the gateway; otherwise SLUICE_URL, where there is an environment. */
  url?: string;
  /** Agent key; otherwise SLUICE_AGENT_KEY. */
  key?: string;
  /** Task key, to state what the user asked for; otherwise SLUICE_TASK_KEY. */
  taskKey?: string;
  sessionId?: string;
  /** `park` unless given. */
  onApproval?: OnApproval;
  /** How long `onApproval: "wait"` waits. Without it, until the approval request expires. */
  approvalDeadlineMs?: number;
  timeoutMs?: number;
  answerLimit?: number;
  retries?: Partial<RetryPolicy>;
  fetch?: typeof fetch;
  /** Further headers, such as the context of a trace: `() => { const h = {}; propagation.inject(context.active(), h); return h }`. */
  headers?: () => Record<string, string>;
}

export interface MakeCallOptions {
  idempotencyKey?: string;
  reason?: string;
  account?: string;
  allowDuplicate?: boolean;
  waitMs?: number;
  onApproval?: OnApproval;
  deadlineMs?: number;
  signal?: AbortSignal;
}

export interface WaitOptions {
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** The gateway's permission for one run of a function. */
export interface GatePass {
  callId: string;
  body: string;
}

export interface ApprovalOptions extends WaitOptions {
  actionType: string;
  options?: string[];
  expiresInSec?: number;
  sessionId?: string;
  idempotencyKey?: string;
}

const OPEN = new Set(["held", "awaiting_approval", "executing", "retrying", "in_doubt"]);
const GOOD = new Set(["done", "allowed"]);
const LONGEST_WAIT_MS = 30_000;
const CALL = ["call_id", "status"] as const;

/** An idempotency key for one call. */
export function newKey(): string {
  return `sdk-${crypto.randomUUID()}`;
}

/** An id as a part of a path: nothing else is sent. */
function part(id: string): string {
  if (/^[A-Za-z0-9_-]+$/.test(id)) return id;
  throw new InvalidCallError("this is not an id", {
    code: "client.bad_id",
    hint: "use ids exactly as the gateway gave them",
  });
}

function variable(name: string): string | undefined {
  const host = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return host.process?.env?.[name] || undefined;
  } catch {
    // Some runtimes ask for a permission.
    return undefined;
  }
}

function checkedKey(key: string | undefined, name: string): () => string | undefined {
  const found = (key ?? variable(name))?.trim();
  if (found !== undefined && !/^[\x21-\x7e]+$/.test(found)) {
    throw new InvalidCallError("the key is not one of a gateway", { code: "client.no_key", hint: "check the key" });
  }
  // In a closure, so that no printed object shows it.
  return () => found;
}

/** A call that was made: its state, and what can be done about it. */
export class CallHandle<T = unknown> {
  view: CallView;
  readonly #client: SluiceClient;

  constructor(client: SluiceClient, view: CallView) {
    this.#client = client;
    this.view = view;
  }

  get callId(): string {
    return this.view.call_id;
  }
  get status(): string {
    return this.view.status;
  }
  /** The result, once the call is done. */
  get result(): T {
    return this.view.result as T;
  }

  async refresh(): Promise<this> {
    this.view = await this.#client.readCall(this.callId);
    return this;
  }

  /** Waits for the end. Throws unless the call ended well. */
  async wait(options: WaitOptions = {}): Promise<this> {
    this.view = await this.#client.waitForCall(this.view, options);
    return this;
  }

  /** Cancels the write. Throws `ConflictError` if it is too late. */
  async cancel(): Promise<this> {
    await this.#client.cancelCall(this.callId);
    return this.refresh();
  }
}

/** A session. Calls of its `client` belong to it. */
export class SessionHandle {
  readonly sessionId: string;
  readonly client: SluiceClient;

  constructor(client: SluiceClient, sessionId: string) {
    this.sessionId = part(sessionId);
    this.client = client.inSession(sessionId);
  }

  /** States what the user asked for. Needs a task key. */
  async stateTask(task: string): Promise<void> {
    const path = `/v1/sessions/${this.sessionId}/task`;
    await this.client.transport.send({ method: "POST", path, body: { task }, withTaskKey: true });
  }

  /** Reports outside text before an agent sees it. Show the text of the answer, not the reported one. */
  async observe(capability: string, text: string): Promise<ObservationView> {
    const path = `/v1/sessions/${this.sessionId}/observations`;
    const body = { capability: capabilityOf(capability), text };
    const answer = await this.client.transport.send({ method: "POST", path, body, patienceMs: 20_000 });
    return decode<ObservationView>(answer, ["verdict", "text"]);
  }

  async end(): Promise<void> {
    await this.client.transport.send({ method: "DELETE", path: `/v1/sessions/${this.sessionId}` });
  }
}

/** Calls by their names: `client.capabilities.email.send({ to: […] })`. */
export interface CapabilityPath {
  (args?: Record<string, unknown>, options?: MakeCallOptions): Promise<CallHandle>;
  readonly [part: string]: CapabilityPath;
}

/** A client of one gateway, with the key of one agent. */
export class SluiceClient {
  readonly url: string;
  readonly sessionId: string | undefined;
  readonly transport: FetchTransport;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions = {}, shared?: FetchTransport) {
    this.url = (options.url ?? variable("SLUICE_URL") ?? "http://127.0.0.1:7420").replace(/\/+$/, "");
    if (!/^https?:\/\//.test(this.url)) {
      throw new InvalidCallError("the address has no scheme", {
        code: "client.url",
        hint: "write http://… or https://…",
      });
    }
    const { key, taskKey, ...rest } = options;
    this.#options = rest;
    this.sessionId = options.sessionId;
    this.transport =
      shared ??
      new FetchTransport({
        url: this.url,
        key: checkedKey(key, "SLUICE_AGENT_KEY"),
        taskKey: checkedKey(taskKey, "SLUICE_TASK_KEY"),
        fetch: options.fetch ?? ((input, init) => fetch(input, init)),
        timeoutMs: options.timeoutMs ?? 10_000,
        answerLimit: options.answerLimit ?? 64 * 1024 * 1024,
        retries: { attempts: 4, firstPauseMs: 200, longestPauseMs: 15_000, ...options.retries },
        headers: options.headers,
      });
  }

  /** This client, with every call in a session. */
  inSession(sessionId: string): SluiceClient {
    return new SluiceClient({ ...this.#options, url: this.url, sessionId }, this.transport);
  }

  /** Makes a call. It may be done, held, or (with `onApproval: "park"`) waiting for a person. */
  async call<T = unknown>(
    capability: string,
    args: Record<string, unknown> = {},
    options: MakeCallOptions = {},
  ): Promise<CallHandle<T>> {
    const view = await this.#make(capability, args, "execute", options.idempotencyKey ?? newKey(), options);
    const how = options.onApproval ?? this.#options.onApproval ?? "park";
    const settled = how === "park" ? view : await this.#settle(view, how, options);
    return new CallHandle<T>(this, settled);
  }

  /** Calls by their names. */
  get capabilities(): CapabilityPath {
    const path = (name: string): CapabilityPath =>
      new Proxy((() => undefined) as unknown as CapabilityPath, {
        // A proxy must not look like a promise.
        get: (_, key) => (typeof key !== "string" || key === "then" ? undefined : path(name ? `${name}.${key}` : key)),
        apply: (_, __, [args, options]) => this.call(name, args, options),
      });
    return path("");
  }

  /** Asks whether this program may do something itself. Throws unless it is allowed now. */
  async check(
    capability: string,
    args: Record<string, unknown> = {},
    options: MakeCallOptions & { operation?: string | undefined } = {},
  ): Promise<GatePass> {
    const body = toJson(args);
    const name = options.operation ?? `once-${newKey()}`;
    let view = await this.#make(capability, JSON.parse(body), "check", await operationKey(capability, name), options);
    view = await this.#settle(view, options.onApproval ?? this.#options.onApproval ?? "park", options, name);
    // Approved, and a moment before it reads `allowed`.
    if (view.status !== "allowed") view = await this.waitForCall(view, { timeoutMs: 30_000, signal: options.signal });
    if (view.status !== "allowed") {
      throw new DeniedError(`the call is ${view.status}, not allowed`, {
        code: `call.${view.status}`,
        callId: view.call_id,
      });
    }
    return { callId: view.call_id, body };
  }

  /**
   * Gates a function as `custom:<name>`: it runs only if the gateway allows exactly its argument. An asynchronous
   * generator is gated before its first item.
   */
  gate<A extends Record<string, unknown>, R>(
    name: string,
    fn: (args: A) => R,
    options: GateOptions<A> = {},
  ): (args: A) => Gated<R> {
    const run = (args: A) => new GateRun<A>(this, capabilityOf(name), args, options);
    const isStream = Object.prototype.toString.call(fn).includes("AsyncGenerator");
    return ((args: A) =>
      isStream
        ? run(args).stream((given) => fn(given) as AsyncIterable<unknown>)
        : run(args).run((given) => fn(given) as unknown)) as (args: A) => Gated<R>;
  }

  /** Runs a function whose call was parked, also in another process: its parked id, the same arguments. */
  async resume<A extends Record<string, unknown>, R>(
    parked: string,
    name: string,
    args: A,
    fn: (args: A) => R,
    options: Omit<GateOptions<A>, "operation"> = {},
  ): Promise<Awaited<R>> {
    const resumed = new GateRun<A>(this, capabilityOf(name), args, { ...options, operation: () => parked }, true);
    return resumed.run((given) => fn(given)) as Promise<Awaited<R>>;
  }

  async getCall<T = unknown>(callId: string): Promise<CallHandle<T>> {
    return new CallHandle<T>(this, await this.readCall(callId));
  }

  async wait<T = unknown>(callId: string, options: WaitOptions = {}): Promise<CallHandle<T>> {
    return (await this.getCall<T>(callId)).wait(options);
  }

  async cancel(callId: string): Promise<CallHandle> {
    await this.cancelCall(callId);
    return this.getCall(callId);
  }

  async whoami(): Promise<Record<string, unknown>> {
    return decode(await this.transport.send({ method: "GET", path: "/v1/whoami" }), []);
  }

  async listCapabilities(): Promise<Record<string, unknown>[]> {
    const page = decode<{ data: unknown }>(await this.transport.send({ method: "GET", path: "/v1/capabilities" }), []);
    return Array.isArray(page.data) ? page.data : [];
  }

  /** The agent's part of the audit log, live. Continues after a break; ends with an error, `break` or the signal. */
  events(
    options: { types?: string[]; after?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<GatewayEvent, void, void> {
    return readEvents(this.transport, options);
  }

  readonly sessions = {
    /** Opens a session. A `task` needs a task key. */
    open: async (options: { client?: string; task?: string } = {}): Promise<SessionHandle> => {
      const plan = { method: "POST", path: "/v1/sessions", body: options, repeatable: false };
      const answer = await this.transport.send({ ...plan, withTaskKey: options.task !== undefined });
      return new SessionHandle(this, decode<SessionView>(answer, ["session_id"]).session_id);
    },
    /** A session that was opened before, for example by the parent of a nested agent. */
    join: (sessionId: string): SessionHandle => new SessionHandle(this, sessionId),
  };

  readonly approvals = {
    /** Asks people about an action that this program carries out itself, and returns at once. */
    request: async (title: string, preview: string, options: ApprovalOptions): Promise<GateReceiptView> => {
      const body: GateRequestBody = {
        title,
        preview,
        action_type: options.actionType,
        session_id: options.sessionId ?? this.sessionId ?? "default",
        ...(options.options && { options: options.options }),
        ...(options.expiresInSec !== undefined && { expires_in_sec: options.expiresInSec }),
      };
      const headers = { "idempotency-key": options.idempotencyKey ?? newKey() };
      const answer = await this.transport.send({
        method: "POST",
        path: "/v1/approvals",
        body,
        headers,
        signal: options.signal,
      });
      return decode<GateReceiptView>(answer, ["approval_id", "status"]);
    },
    /** The state of a request, after waiting for a decision up to a minute. */
    get: async (
      approvalId: string,
      options: { waitMs?: number; signal?: AbortSignal | undefined } = {},
    ): Promise<GateRequestView> => {
      const wait = options.waitMs ? `?wait_ms=${options.waitMs}` : "";
      const path = `/v1/approvals/${part(approvalId)}${wait}`;
      const answer = await this.transport.send({
        method: "GET",
        path,
        patienceMs: options.waitMs ?? 0,
        signal: options.signal,
      });
      return decode<GateRequestView>(answer, ["approval_id", "status"]);
    },
    /** Asks, and waits for the decision. A denial is an answer too: look at `status`. */
    ask: async (title: string, preview: string, options: ApprovalOptions): Promise<GateRequestView> => {
      const { approval_id } = await this.approvals.request(title, preview, options);
      return this.#poll(
        (waitMs) => this.approvals.get(approval_id, { waitMs, signal: options.signal }),
        (view) => view.status === "pending",
        options,
        { other: approval_id },
      );
    },
  };

  // What follows is used by handles and gates.

  /** @internal */
  async readCall(callId: string, waitMs = 0, signal?: AbortSignal): Promise<CallView> {
    const path = `/v1/calls/${part(callId)}${waitMs > 0 ? `?wait_ms=${waitMs}` : ""}`;
    return decode<CallView>(await this.transport.send({ method: "GET", path, patienceMs: waitMs, signal }), CALL);
  }

  /** @internal */
  async cancelCall(callId: string): Promise<void> {
    await this.transport.send({ method: "POST", path: `/v1/calls/${part(callId)}/cancel` });
  }

  /** @internal */
  async waitForCall(view: CallView, options: WaitOptions, onlyDecision = false): Promise<CallView> {
    const goesOn = (now: CallView) => OPEN.has(now.status) && !(onlyDecision && now.status !== "awaiting_approval");
    const read = (ms: number) => this.readCall(view.call_id, ms, options.signal);
    const last = goesOn(view) ? await this.#poll(read, goesOn, options, { callId: view.call_id }) : view;
    if (GOOD.has(last.status) || (onlyDecision && OPEN.has(last.status))) return last;
    throw callError(last);
  }

  async #poll<T extends { status: string }>(
    read: (waitMs: number) => Promise<T>,
    goesOn: (view: T) => boolean,
    options: WaitOptions,
    about: { callId?: string; other?: string },
  ): Promise<T> {
    const ends = options.timeoutMs === undefined ? undefined : performance.now() + options.timeoutMs;
    for (let quick = 0; ; ) {
      const left =
        ends === undefined ? LONGEST_WAIT_MS : Math.min(LONGEST_WAIT_MS, Math.ceil(ends - performance.now()));
      if (left <= 0) {
        const hint = "it goes on; read or cancel it by its id";
        throw new WaitTimeoutError("the time to wait is over", {
          code: "client.wait_timeout",
          hint,
          retry: "after_person",
          ...about,
        });
      }
      const begun = performance.now();
      const view = await read(left);
      if (!goesOn(view)) return view;
      // A gateway that answers at once without a change must not be asked without a pause.
      quick = performance.now() - begun < 50 ? quick + 1 : 0;
      if (quick) await pause(Math.min(50 * quick, 1000, left), options.signal);
    }
  }

  async #make(
    capability: string,
    args: Record<string, unknown>,
    mode: "execute" | "check",
    key: string,
    options: MakeCallOptions,
  ): Promise<CallView> {
    const body: CallOptions = { capability, arguments: args, idempotency_key: key, mode };
    if (this.sessionId !== undefined) body.session_id = this.sessionId;
    if (options.reason !== undefined) body.reason = options.reason;
    if (options.account !== undefined) body.account = options.account;
    if (options.allowDuplicate) body.allow_duplicate = true;
    if (options.waitMs !== undefined) body.wait_ms = Math.min(options.waitMs, LONGEST_WAIT_MS);
    const patienceMs = Math.max(5000, options.waitMs ?? 0);
    const text = await this.transport.send({
      method: "POST",
      path: "/v1/calls",
      body,
      patienceMs,
      signal: options.signal,
    });
    const view = decode<CallView>(text, CALL);
    if (!GOOD.has(view.status) && !OPEN.has(view.status)) throw callError(view);
    return view;
  }

  async #settle(view: CallView, how: OnApproval, options: MakeCallOptions, parked = view.call_id): Promise<CallView> {
    if (view.status !== "awaiting_approval") return view;
    const timeoutMs = options.deadlineMs ?? this.#options.approvalDeadlineMs;
    if (how === "wait") return this.waitForCall(view, { timeoutMs, signal: options.signal }, true);
    if (how === "park") throw new ParkedCallError(parked, view.call_id, view.approval_id ?? undefined);
    try {
      await this.cancelCall(view.call_id);
    } catch (error) {
      if (!(error instanceof ConflictError || error instanceof NotDoneError)) throw error;
      // A person was faster. The call is not used in either case; a denial is told as such.
      const after = await this.readCall(view.call_id);
      if (!GOOD.has(after.status) && !OPEN.has(after.status)) throw callError(after);
    }
    throw new ApprovalRequiredError("the call needs approval, which this client does not wait for; it was withdrawn", {
      code: "client.approval_required",
      hint: "tell your user; or set onApproval to `wait` or `park`",
      retry: "after_person",
      callId: view.call_id,
    });
  }
}

/** What a gated function gives. */
export type Gated<R> =
  R extends AsyncGenerator<infer T, infer Return, infer Next> ? AsyncGenerator<T, Return, Next> : Promise<Awaited<R>>;
