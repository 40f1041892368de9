/** Client of a Sluicegate gateway. */
export {
  type ApprovalOptions,
  CallHandle,
  type CapabilityPath,
  type ClientOptions,
  type Gated,
  type GatePass,
  type MakeCallOptions,
  type OnApproval,
  SessionHandle,
  SluiceClient,
  type WaitOptions,
} from "./client.js";
export * from "./errors.js";
export type { EventOptions, GatewayEvent } from "./events.js";
export { type FinishedRun, type GateOptions, GatewayLedger, type OperationLedger } from "./gate.js";
export type * from "./schema.js";
export type { RetryPolicy } from "./transport.js";
export { verifyWebhook, WebhookError, type WebhookOptions } from "./webhooks.js";
