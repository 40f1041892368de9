// Types of the API. Written by `sdk/generate.py` from `docs/openapi.json` and `docs/errors.md`: do not edit.

/** A problem document (RFC 9457): why a request was refused. */
export interface ProblemDetails {
  /** The id of the call it belongs to. */
  call_id?: string | null;
  /** The stable code; see docs/errors.md. */
  code: string;
  /** What happened in this case. */
  detail: string;
  /** What to do instead. */
  hint: string;
  /** An existing object that the refusal refers to. */
  other?: string | null;
  /** The id of the request, for support. */
  request_id?: string | null;
  /** Whether and when to retry. */
  retry: string;
  /** When to retry, if that is known. */
  retry_after_ms?: number | null;
  /** The rule that refused. */
  rule?: string | null;
  /** The HTTP status. */
  status: number;
  /** The kind of problem, as text. */
  title: string;
  /** The URN of the kind of problem. */
  type: string;
}

/** The next attempt of a write. */
export interface RetryView {
  /** The number of the next retry, from 1 on. */
  attempt: number;
  /** When the retry is made, unless a person requests it earlier. */
  next_at: string;
  /** How many retries there are before the write becomes a dead letter. */
  of: number;
}

/** Why an attempt failed. */
export interface LastErrorView {
  /** When the attempt failed. */
  at: string;
  /** The reason, as a stable code. */
  code: string;
  /** What the service said, screened and cut to length. Agents see it only for mounted servers, whose words pass the content stages; otherwise it is shown to people only. */
  service_says?: string | null;
  /** The reason, as our text. */
  text: string;
}

/** What the audit log holds of a read: ids and hashes, never content. */
export interface ReadTraceView {
  /** How old the replica was, in seconds, if the answer came from one. */
  age_s?: number | null;
  /** How many objects the answer held. */
  count: number;
  /** The ids of the first objects: messages, files, keys. */
  ids: string[];
  /** How many more ids there were. */
  more: number;
  /** The keyed hash of the search text, if it was a search. The same text has the same hash. */
  query_hash?: string | null;
  /** The keyed hash of the answer. */
  result_hash: string;
}

/** The state of a call. */
export interface CallView {
  /** The id of the approval that a person decides. */
  approval_id?: string | null;
  /** Whether batch protection asked, rather than a rule. */
  batch?: boolean | null;
  /** The id of the held write. */
  buffer_id?: string | null;
  /** The id of the call. */
  call_id: string;
  /** When the undo window closes. */
  cancel_deadline?: string | null;
  /** The capability of the call. */
  capability?: string | null;
  /** Why it is blocked or over, as a stable code. */
  code?: string | null;
  /** What the call would use and what is left of the day, for a check of a security proxy's call. */
  estimate?: unknown;
  /** When no answer becomes a denial. */
  expires_at?: string | null;
  /** The freeze in force, if a read was answered in spite of it: everything else is refused meanwhile. */
  frozen?: string | null;
  /** What to do instead. */
  hint?: string | null;
  /** Why the last attempt failed, while the write has not happened. */
  last_error?: LastErrorView | null;
  /** What the audit log holds of a read. Shown to operators only. */
  read?: ReadTraceView | null;
  /** Why it is blocked or over, as text. */
  reason?: string | null;
  /** The result, once the call is done. */
  result?: unknown;
  /** The next attempt, while the write is `retrying`. */
  retry?: RetryView | null;
  /** The rule that decided. */
  rule?: string | null;
  /** `done`, `allowed`, `held`, `awaiting_approval`, `executing`, `retrying`, `blocked`, `in_doubt`, `needs_human`, `stale`, `cancelled`, `denied`, `expired`, `dead`, `discarded` or `refused`. */
  status: string;
}

/** A held write. */
export interface HoldView {
  /** What is known here of the objects it names by id, one line each, in third-party words. */
  about?: string[];
  /** The account at the service, if the write names one. */
  account?: string | null;
  /** When it was admitted. */
  admitted_at: string;
  /** The agent that made it. */
  agent: string;
  /** The id of its approval, open or decided. */
  approval_id?: string | null;
  /** The arguments, for those who may see them. */
  arguments?: unknown;
  /** How many attempts were made. */
  attempts: number;
  /** The id of the write. */
  buffer_id: string;
  /** The id of the call that made it. */
  call_id: string;
  /** When its undo window closes. */
  cancel_deadline?: string | null;
  /** The capability of the write. */
  capability: string;
  /** The reason for its state. */
  code?: string | null;
  /** The SHA-256 digest of the exact action. */
  digest: string;
  /** Why the last attempt failed, while the write has not happened. */
  last_error?: LastErrorView | null;
  /** The agent's reason, in its own words: nobody has checked it. */
  reason?: string | null;
  /** The service's receipt. */
  receipt?: string | null;
  /** The next attempt, while the write is `retrying`. */
  retry?: RetryView | null;
  /** The write that it undoes. */
  reverses?: string | null;
  /** The service of the write. */
  service: string;
  /** The session in which it was made. */
  session_id?: string | null;
  /** The options that a spawn adds: the shorter time, the schema of the answer. */
  spawn?: unknown;
  /** The exact state. */
  state: string;
  /** The state, in the words of calls. */
  status: string;
  /** The targets that it reaches, and where each was first seen. */
  targets?: TargetView[];
  /** The tier of the policy verdict. */
  tier: string;
  /** The version: it counts changes of state. */
  version: number;
  /** How many ordinary writes it counts as. */
  weight: number;
}

/** A target of a write. */
export interface TargetView {
  /** The argument that holds it. */
  argument: string;
  /** `asked` for by the user, `known`, `seen` in outside text, or `new`. */
  origin: string;
  /** The outside text in which it was seen. */
  source?: string | null;
  /** The value in the write. */
  value: string;
}

/** A session. */
export interface SessionView {
  /** The agent of the session. */
  agent: string;
  /** The name of the client program. */
  client?: string | null;
  /** When it ended. */
  ended_at?: string | null;
  /** Whether the user's task is known. */
  has_task: boolean;
  /** When it was opened. */
  opened_at: string;
  /** The id of the session. */
  session_id: string;
  /** Whether it was shown content that looked like an attack. */
  tainted: boolean;
}

/** What the client may show. */
export interface ObservationView {
  /** The finding, if it is withheld. */
  finding_id?: string | null;
  /** The text to show instead of the reported one. */
  text: string;
  /** `pass`, `withheld` or `refused`. */
  verdict: string;
}

/** The decision of a person. */
export interface GateDecisionView {
  /** The number of the menu line. */
  code: string;
  /** The person's note; the letter of an option. */
  note: string | null;
  /** The text that the person wants instead. */
  override: string | null;
}

/** The state of a request right after it was made. */
export interface GateReceiptView {
  /** The id of the approval. */
  approval_id: string;
  /** Whether a standing approval answered. */
  auto: boolean;
  /** The decision. */
  decision: GateDecisionView | null;
  /** When no answer becomes a denial, in seconds since 1970. */
  expires_at: number | null;
  /** The allow rule that answered. */
  rule_id?: string | null;
  /** `pending`, `approved`, `denied` or `expired`. */
  status: string;
}

/** The state of a request. */
export interface GateRequestView {
  /** The kind of action, once decided. */
  action_type: string | null;
  /** The chosen option, as text. */
  answer?: string | null;
  /** The id of the approval. */
  approval_id: string;
  /** The decision. */
  decision: GateDecisionView | null;
  /** When no answer becomes a denial, in seconds since 1970. */
  expires_at: number | null;
  /** The freeze that holds an approval back: the request stays `pending` until the freeze is lifted. */
  frozen?: string | null;
  /** The client's name for its session, once decided. */
  session_id: string | null;
  /** `pending`, `approved`, `denied` or `expired`. */
  status: string;
  /** The title of the request, in lists. */
  title?: string | null;
}

/** Who carries out a call. */
export type CallMode = "execute" | "check";

/** A call as the agent states it. */
export interface CallOptions {
  /** The account of the service. */
  account?: string | null;
  /** Allows a second identical call shortly after the first. */
  allow_duplicate?: boolean;
  /** The arguments of the capability. */
  arguments?: Record<string, unknown>;
  /** The capability: `email.send`, or `custom:<tool>` with `mode: check`. */
  capability: string;
  /** The idempotency key: a repeated call with the same key is the same call, for 30 days. */
  idempotency_key?: string | null;
  /** Whether the gateway carries out the call, or only says whether the caller may. */
  mode?: CallMode;
  /** The reason in the agent's words. Shown to people as such. */
  reason?: string | null;
  /** The session, as issued by the gateway. */
  session_id?: string | null;
  /** How long to wait for the outcome, in milliseconds. */
  wait_ms?: number | null;
}

/** A new session. */
export interface NewSessionBody {
  /** The agent of the session. Only an operator names one; a key is bound to its own agent. */
  agent?: string | null;
  /** The name of the client program. */
  client?: string | null;
  /** What the user asked for. Only with a task key or an operator token. */
  task?: string | null;
}

/** A prompt of the user in an open session. */
export interface SessionPromptBody {
  /** The user's own words. */
  task: string;
}

/** Content that a self-executing client is about to show its agent. */
export interface ObservationBody {
  /** The tool that the content came from: `custom:<tool>`. */
  capability: string;
  /** The text of the content. */
  text: string;
}

/** A chat or an address. */
export interface GateTarget {
  /** An e-mail address. */
  email_to?: string | null;
  /** The number of a chat. */
  tg_chat_id?: string | null;
}

/** An action that a client wants to carry out itself. Other members are ignored, as existing clients expect. */
export interface GateRequestBody {
  /** The kind of action: `exec_cmd`, `http_request`, `write_file`, `send_message`, `custom:<tool>`. */
  action_type: string;
  /** `telegram` or `email`; by default all configured people are asked. */
  channel?: string | null;
  /** Seconds after which no answer becomes a denial. */
  expires_in_sec?: number | null;
  /** The possible answers, for a request with options. */
  options?: string[] | null;
  /** The details of the action. */
  preview: string;
  /** The client's name for its run or session. */
  session_id: string;
  /** The chat or address to ask; the operator must allow it. */
  target?: GateTarget | null;
  /** A short title. */
  title: string;
}

/** A stable code of the gateway. */
export type GatewayCode =
  | "door.too_large"
  | "door.head_too_large"
  | "door.too_slow"
  | "door.too_many"
  | "door.overloaded"
  | "door.origin"
  | "door.media_type"
  | "door.not_found"
  | "door.method"
  | "door.headers"
  | "door.parameter"
  | "door.version"
  | "identity.missing"
  | "identity.unknown"
  | "identity.revoked"
  | "identity.expired"
  | "identity.wrong_kind"
  | "identity.task_key"
  | "identity.not_allowed"
  | "identity.paused"
  | "identity.unknown_agent"
  | "identity.agent_exists"
  | "identity.session"
  | "json.too_large"
  | "json.too_deep"
  | "json.too_many_items"
  | "json.lossy_number"
  | "json.duplicate_key"
  | "json.syntax"
  | "schema.unknown_capability"
  | "schema.not_an_object"
  | "schema.unknown_argument"
  | "schema.missing_argument"
  | "schema.wrong_type"
  | "schema.bad_name"
  | "schema.unknown_account"
  | "policy.blocked"
  | "policy.rate_limit"
  | "policy.invalid"
  | "policy.unavailable"
  | "check.flood"
  | "batch.window"
  | "leak.found"
  | "content.withheld"
  | "content.ambiguous"
  | "content.unread"
  | "content.duplicate_key"
  | "approval.denied"
  | "approval.expired"
  | "approval.already_decided"
  | "approval.unclear_reply"
  | "approval.too_late"
  | "approval.not_pending"
  | "approval.withdrawn"
  | "approval.lapsed"
  | "approval.not_found"
  | "approval.not_an_approver"
  | "approval.reply_token"
  | "approval.not_offered"
  | "approval.grown"
  | "approval.not_possible"
  | "approval.target"
  | "approval.too_many"
  | "hold.too_late"
  | "hold.not_yet"
  | "hold.queue_full"
  | "hold.not_found"
  | "hold.cancelled"
  | "hold.stale"
  | "hold.dead"
  | "hold.discarded"
  | "call.possible_duplicate"
  | "call.key_reuse"
  | "call.not_found"
  | "freeze.active"
  | "execute.in_doubt"
  | "execute.needs_human"
  | "execute.refused"
  | "execute.bad_argument"
  | "execute.unavailable"
  | "execute.refused_mismatch"
  | "execute.fenced"
  | "execute.second_handle"
  | "execute.out_of_time"
  | "execute.reconnect"
  | "egress.not_allowed"
  | "egress.limit"
  | "egress.breaker"
  | "egress.burned"
  | "egress.url"
  | "egress.header"
  | "egress.address"
  | "egress.ticket"
  | "egress.dns"
  | "egress.connect"
  | "egress.tls"
  | "egress.no_answer"
  | "egress.broken"
  | "egress.reply"
  | "vault.unknown"
  | "vault.scope"
  | "vault.locked"
  | "worker.crashed"
  | "worker.quarantined"
  | "proxy.budget"
  | "proxy.output"
  | "mount.down"
  | "mount.sign_in"
  | "mount.failed"
  | "mount.changed"
  | "mount.invalid"
  | "rollback.conflict"
  | "rollback.expired"
  | "rollback.irreversible"
  | "rollback.not_found"
  | "rollback.already_undone"
  | "rollback.not_possible"
  | "filesystem.out_of_scope"
  | "filesystem.not_found"
  | "filesystem.exists"
  | "filesystem.not_a_file"
  | "filesystem.not_a_folder"
  | "filesystem.not_empty"
  | "filesystem.symlink"
  | "filesystem.hard_link"
  | "filesystem.too_large"
  | "filesystem.encoding"
  | "filesystem.pattern"
  | "filesystem.count"
  | "filesystem.changed"
  | "filesystem.not_as_approved"
  | "filesystem.too_many_watches"
  | "filesystem.no_watch"
  | "filesystem.denied"
  | "filesystem.disk_full"
  | "filesystem.failed"
  | "git.not_installed"
  | "git.not_a_repository"
  | "git.unsupported_repository"
  | "git.unknown_revision"
  | "git.exists"
  | "git.nothing_to_commit"
  | "git.no_author"
  | "git.conflict"
  | "git.hidden_path"
  | "git.too_much"
  | "git.too_slow"
  | "git.remote_not_allowed"
  | "git.remote_refused"
  | "git.failed"
  | "process.not_allowed"
  | "process.not_found"
  | "process.too_many"
  | "process.failed"
  | "custom.program_failed"
  | "custom.too_slow"
  | "state.conflict"
  | "state.quota"
  | "state.key"
  | "state.no_session"
  | "state.version"
  | "service.unknown"
  | "service.stopped"
  | "service.starting"
  | "service.settings"
  | "oauth.state"
  | "oauth.refused"
  | "oauth.issuer"
  | "oauth.metadata"
  | "oauth.client"
  | "oauth.unclear"
  | "store.unavailable"
  | "store.disk_full"
  | "store.not_found"
  | "store.conflict"
  | "store.in_use"
  | "store.foreign_file"
  | "store.old_sqlite"
  | "store.node_taken"
  | "store.engine"
  | "store.damaged"
  | "store.wrong_key"
  | "store.newer_schema"
  | "store.read_only"
  | "store.unknown_outcome"
  | "store.durability_off"
  | "store.damaged_action"
  | "recovery.required"
  | "recovery.record_damaged"
  | "recovery.not_needed"
  | "recovery.state_file"
  | "audit.unavailable"
  | "gateway.unavailable"
  | "gateway.starting"
  | "gateway.stopping"
  | "gateway.clock"
  | "gateway.sandbox"
  | "gateway.internal"
  | "gateway.unsupported";
