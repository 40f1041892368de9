//! The table of routes: every address of the HTTP API.

mod admin;
mod calls;
mod channels;
mod dashboard;
mod dead_letters;
mod findings;
mod gate;
mod mounts;
mod outbound;
mod people;
mod proxies;
mod services;

use sluice_core::refusal::Code;
use sluice_store::OperatorRole;

use super::route::{QueryParam, Route, RouteAccess};

/// Turns a handler function into the form that the table holds.
macro_rules! handler {
    ($path:path) => {
        |visit| Box::pin($path(visit))
    };
}

use handler;

/// A shape of the API description.
macro_rules! shape {
    ($type:ty) => {
        Some(|schemas| schemas.subschema_for::<$type>())
    };
}

use shape;

const CURSOR: QueryParam =
    QueryParam { name: "cursor", kind: "string", about: "Where the page starts: `next_cursor` of the previous page." };
const LIMIT: QueryParam = QueryParam { name: "limit", kind: "integer", about: "Entries per page, 1 to 500." };
const AGENT: QueryParam = QueryParam { name: "agent", kind: "string", about: "Only entries of this agent." };
const SERVICE: QueryParam = QueryParam { name: "service", kind: "string", about: "Only entries of this service." };
const STATE: QueryParam =
    QueryParam { name: "state", kind: "string", about: "Only entries in these states, separated by commas." };
const SESSION: QueryParam = QueryParam { name: "session_id", kind: "string", about: "Only entries of this session." };
const WAIT: QueryParam = QueryParam {
    name: "wait_ms",
    kind: "integer",
    about: "Waits this many milliseconds for a change, at most 60000; the stop lane does not wait.",
};
const HOLDS: [QueryParam; 6] = [CURSOR, LIMIT, AGENT, SERVICE, STATE, SESSION];
const VIEWER: RouteAccess = RouteAccess::Operator(OperatorRole::Viewer);
const APPROVER: RouteAccess = RouteAccess::Operator(OperatorRole::Approver);
const ADMIN: RouteAccess = RouteAccess::Operator(OperatorRole::Admin);

/// The codes that a call can be refused with.
const CALL: [Code; 114] = [
    Code::IdentityPaused,
    Code::IdentitySession,
    Code::SchemaUnknownCapability,
    Code::SchemaNotAnObject,
    Code::SchemaUnknownArgument,
    Code::SchemaMissingArgument,
    Code::PolicyBlocked,
    Code::PolicyRateLimit,
    Code::CheckFlood,
    Code::LeakFound,
    Code::ApprovalDenied,
    Code::ApprovalExpired,
    Code::HoldCancelled,
    Code::HoldStale,
    Code::HoldDead,
    Code::HoldDiscarded,
    Code::CallPossibleDuplicate,
    Code::CallKeyReuse,
    Code::CallNotFound,
    Code::FreezeActive,
    Code::ServiceStopped,
    Code::ExecuteInDoubt,
    Code::ExecuteNeedsHuman,
    Code::ExecuteRefused,
    Code::EgressNotAllowed,
    Code::EgressLimit,
    Code::EgressBreaker,
    Code::ExecuteBadArgument,
    Code::ExecuteUnavailable,
    Code::EgressBurned,
    Code::EgressUrl,
    Code::EgressHeader,
    Code::EgressAddress,
    Code::EgressDns,
    Code::EgressConnect,
    Code::EgressTls,
    Code::EgressNoAnswer,
    Code::EgressBroken,
    Code::EgressReply,
    Code::VaultUnknown,
    Code::VaultScope,
    Code::VaultLocked,
    Code::FilesOutOfScope,
    Code::FilesNotFound,
    Code::FilesExists,
    Code::FilesNotAFile,
    Code::FilesNotAFolder,
    Code::FilesNotEmpty,
    Code::FilesSymlink,
    Code::FilesHardLink,
    Code::FilesTooLarge,
    Code::FilesEncoding,
    Code::FilesPattern,
    Code::FilesCount,
    Code::FilesChanged,
    Code::FilesNotAsApproved,
    Code::StateConflict,
    Code::StateQuota,
    Code::StateKey,
    Code::StateNoSession,
    Code::StoreDiskFull,
    Code::AuditUnavailable,
    Code::GatewayStarting,
    Code::GatewayUnsupported,
    Code::HoldQueueFull,
    Code::ServiceStarting,
    Code::MountDown,
    Code::MountFailed,
    Code::MountSignIn,
    Code::MountChanged,
    Code::SchemaUnknownAccount,
    Code::ContentWithheld,
    Code::ContentAmbiguous,
    Code::ContentUnread,
    Code::ApprovalWithdrawn,
    Code::ApprovalLapsed,
    Code::ExecuteRefusedMismatch,
    Code::ExecuteOutOfTime,
    Code::ExecuteReconnect,
    Code::EgressTicket,
    Code::WorkerCrashed,
    Code::WorkerQuarantined,
    Code::ProxyBudget,
    Code::ProxyOutput,
    Code::FilesTooManyWatches,
    Code::FilesNoWatch,
    Code::FilesDenied,
    Code::FilesDiskFull,
    Code::FilesFailed,
    Code::StateVersion,
    Code::ServiceUnknown,
    Code::GatewaySandbox,
    Code::GatewayStopping,
    Code::GatewayClock,
    Code::StoreConflict,
    Code::StoreNotFound,
    Code::GitNotInstalled,
    Code::GitNotARepository,
    Code::GitUnsupportedRepository,
    Code::GitUnknownRevision,
    Code::GitExists,
    Code::GitNothingToCommit,
    Code::GitNoAuthor,
    Code::GitConflict,
    Code::GitHiddenPath,
    Code::GitTooMuch,
    Code::GitTooSlow,
    Code::GitRemoteNotAllowed,
    Code::GitRemoteRefused,
    Code::GitFailed,
    Code::ProcessNotAllowed,
    Code::ProcessNotFound,
    Code::ProcessTooMany,
    Code::ProcessFailed,
];

/// Every route.
pub fn all() -> impl Iterator<Item = &'static Route> {
    [
        calls::ROUTES,
        people::ROUTES,
        gate::ROUTES,
        admin::ROUTES,
        outbound::ROUTES,
        proxies::ROUTES,
        dead_letters::ROUTES,
        services::ROUTES,
        findings::ROUTES,
        mounts::ROUTES,
        channels::ROUTES,
        dashboard::ROUTES,
    ]
    .into_iter()
    .flatten()
}
