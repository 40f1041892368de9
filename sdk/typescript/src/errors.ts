/**
 * Errors of the gateway, as types. Each has the stable code, the advice on retrying and a hint. No error contains
 * arguments, results or credentials.
 */
import type { GatewayCode } from "./schema.js";

export type RetryAdvice = "never" | "after_change" | "after" | "after_person" | "safe_to_repeat";

/** A code of the gateway, of this client (`client.…`), or a newer one. */
export type ErrorCode = GatewayCode | `client.${string}` | (string & {});

/** What an error says beside its text. */
export interface ErrorDetails {
  code: ErrorCode;
  hint?: string | undefined;
  retry?: RetryAdvice | (string & {}) | undefined;
  /** Milliseconds after which a retry may pass, if that is known. */
  retryAfterMs?: number | undefined;
  status?: number | undefined;
  callId?: string | undefined;
  rule?: string | undefined;
  other?: string | undefined;
  requestId?: string | undefined;
}

/** Any refusal or failure. */
export class SluiceError extends Error {
  readonly code: ErrorCode;
  readonly hint: string;
  readonly retry: RetryAdvice | (string & {});
  readonly retryAfterMs: number | undefined;
  readonly status: number | undefined;
  readonly callId: string | undefined;
  readonly rule: string | undefined;
  readonly other: string | undefined;
  readonly requestId: string | undefined;

  constructor(text: string, details: ErrorDetails) {
    super(`${text} [${details.code}]${details.hint ? `. ${details.hint}` : ""}`);
    this.name = new.target.name;
    this.code = details.code;
    this.hint = details.hint ?? "";
    this.retry = details.retry ?? "never";
    this.retryAfterMs = details.retryAfterMs;
    this.status = details.status;
    this.callId = details.callId;
    this.rule = details.rule;
    this.other = details.other;
    this.requestId = details.requestId;
  }
}

/** The key is missing, unknown, revoked, expired or paused. */
export class CredentialError extends SluiceError {}
/** The call does not have the form that the gateway or the capability expects. */
export class InvalidCallError extends SluiceError {}
/** There is no such call, session, approval or capability for this key. */
export class NotFoundError extends SluiceError {}
/** The call contradicts an earlier one or the state of an object. */
export class ConflictError extends SluiceError {}
/** A rule blocks the call. `rule` names it. */
export class BlockedError extends SluiceError {}
/** A person denied the call. */
export class DeniedError extends SluiceError {}
/** Nobody answered in time, which counts as a denial. */
export class ExpiredError extends DeniedError {}
/** The call needs approval and `onApproval` is `deny`: it was withdrawn. */
export class ApprovalRequiredError extends SluiceError {}
/** The call holds something that must not leave. */
export class LeakFoundError extends SluiceError {}
/** The function ran; its result looks like an attack on agents and is withheld. `other` is the id of the finding. */
export class ContentWithheldError extends SluiceError {}
/** A person has frozen this agent, this service or everything. */
export class FrozenError extends SluiceError {}
/** Too many calls, requests or approvals. */
export class RateLimitedError extends SluiceError {}
/** It may have happened. Never repeat it. */
export class OutcomeUnknownError extends SluiceError {}
/** The write ended without an effect. */
export class NotDoneError extends SluiceError {}
/** The operation has finished before. It is not carried out again; `result` is what it returned, if it is known. */
export class AlreadyFinishedError extends SluiceError {
  result: unknown;
}
/** The gateway or a service cannot be reached, or cannot work at present. */
export class UnavailableError extends SluiceError {}
/** The answer is not one of this API. */
export class ResponseError extends SluiceError {}
/** The function ran, but its result could not be reported, so it is not shown. Do not run it again. */
export class ReportError extends SluiceError {}
/** The time to wait is over. The call goes on. */
export class WaitTimeoutError extends SluiceError {}

/** The call waits for a person and `onApproval` is `park`. `parked` resumes it, also in another process. */
export class ParkedCallError extends SluiceError {
  readonly parked: string;
  readonly approvalId: string | undefined;

  constructor(parked: string, callId: string, approvalId: string | undefined) {
    super("the call waits for a person", {
      code: "client.parked",
      hint: "resume it with the parked id after the decision; do not make the call again as a new one",
      retry: "after_person",
      callId,
    });
    this.parked = parked;
    this.approvalId = approvalId;
  }
}

type ErrorKind = new (text: string, details: ErrorDetails) => SluiceError;

const BY_CODE: Record<string, ErrorKind> = {
  "policy.blocked": BlockedError,
  "egress.not_allowed": BlockedError,
  "egress.address": BlockedError,
  "approval.denied": DeniedError,
  "approval.expired": ExpiredError,
  "approval.lapsed": ExpiredError,
  "leak.found": LeakFoundError,
  "content.withheld": ContentWithheldError,
  "freeze.active": FrozenError,
  "worker.quarantined": FrozenError,
  "execute.in_doubt": OutcomeUnknownError,
  "execute.needs_human": OutcomeUnknownError,
  "egress.no_answer": OutcomeUnknownError,
  "egress.broken": OutcomeUnknownError,
  "store.unknown_outcome": OutcomeUnknownError,
  "execute.refused": NotDoneError,
  "execute.refused_mismatch": NotDoneError,
  "hold.cancelled": NotDoneError,
  "hold.discarded": NotDoneError,
  "hold.dead": NotDoneError,
  "hold.stale": NotDoneError,
  "approval.withdrawn": NotDoneError,
};
const BY_STATUS: Record<number, ErrorKind> = {
  401: CredentialError,
  403: BlockedError,
  404: NotFoundError,
  408: UnavailableError,
  409: ConflictError,
  410: NotDoneError,
  423: FrozenError,
  429: RateLimitedError,
};

/** The type of error for a code, or for a status if the code is not known. */
export function errorKind(code: string, status: number | undefined): ErrorKind {
  const known = Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : undefined;
  if (known) return known;
  if (code.startsWith("identity.") && (status === undefined || status === 401 || status === 403))
    return CredentialError;
  if (status === undefined) return SluiceError;
  return BY_STATUS[status] ?? (status >= 500 ? UnavailableError : status >= 400 ? InvalidCallError : SluiceError);
}
