//! The table of routes: everything that can be asked over HTTP.

mod admin;
mod calls;
mod channels;
mod dead;
mod findings;
mod gate;
mod mounts;
mod out;
mod people;
mod proxies;
mod services;

use sluice_core::refusal::Code;
use sluice_store::Role;

use super::route::{Access, Param, Route};

/// Turns a handler into what the table holds.
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

const CURSOR: Param = Param { name: "cursor", kind: "string", about: "Where the page starts, from the one before." };
const LIMIT: Param = Param { name: "limit", kind: "integer", about: "Entries per page, 1 to 500." };
const AGENT: Param = Param { name: "agent", kind: "string", about: "Only of this agent." };
const SERVICE: Param = Param { name: "service", kind: "string", about: "Only of this service." };
const STATE: Param = Param { name: "state", kind: "string", about: "Only in these states, separated by commas." };
const SESSION: Param = Param { name: "session_id", kind: "string", about: "Only of this session." };
const WAIT: Param = Param {
    name: "wait_ms",
    kind: "integer",
    about: "Waits so long for a change, at most 60000; not at all at the stop lane.",
};
const HOLDS: [Param; 6] = [CURSOR, LIMIT, AGENT, SERVICE, STATE, SESSION];
const VIEWER: Access = Access::Operator(Role::Viewer);
const APPROVER: Access = Access::Operator(Role::Approver);
const ADMIN: Access = Access::Operator(Role::Admin);

/// What a call can be refused with.
const CALL: [Code; 113] = [
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
        out::ROUTES,
        proxies::ROUTES,
        dead::ROUTES,
        services::ROUTES,
        findings::ROUTES,
        mounts::ROUTES,
        channels::ROUTES,
    ]
    .into_iter()
    .flatten()
}
