//! Routes for withheld items, and for what sessions were shown.

use sluice_core::refusal::Code;
use sluice_store::OperatorRole;

use super::{APPROVER, CURSOR, LIMIT, VIEWER, handler, shape};
use crate::http::route::{QueryParam, Route, RouteAccess};
use crate::http::{findings, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/findings",
        name: "listFindings",
        about: "Lists items that were withheld from agents, newest first.",
        access: VIEWER,
        stops: false,
        query: &[
            CURSOR,
            LIMIT,
            QueryParam { name: "open", kind: "boolean", about: "Only items that nobody has released." },
        ],
        body: None,
        answers: &[(200, shape!(views::ListPage<findings::ContentFindingView>))],
        refusals: &[],
        handler: handler!(findings::list),
    },
    Route {
        method: "GET",
        path: "/v1/findings/{finding_id}",
        name: "getFinding",
        about: "Describes a withheld item; includes the item for approvers who request it and, once released, to its agent.",
        access: RouteAccess::Either(OperatorRole::Viewer),
        stops: false,
        query: &[QueryParam { name: "content", kind: "boolean", about: "Includes the item itself, for approvers." }],
        body: None,
        answers: &[(200, shape!(findings::ContentFindingView))],
        refusals: &[Code::StoreNotFound, Code::VaultLocked],
        handler: handler!(findings::show),
    },
    Route {
        method: "POST",
        path: "/v1/findings/{finding_id}/release",
        name: "releaseFinding",
        about: "Releases a withheld item after a person has checked it.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(findings::ReleaseFindingBody),
        answers: &[(200, shape!(findings::ContentFindingView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(findings::release),
    },
    Route {
        method: "POST",
        path: "/v1/sessions/{session_id}/observations",
        name: "observe",
        about: "Screens content that a self-executing client is about to show its agent, and returns what it may show.",
        access: RouteAccess::Agent,
        stops: false,
        query: &[],
        body: shape!(findings::ObservationBody),
        answers: &[(200, shape!(findings::ObservationView))],
        refusals: &[Code::IdentitySession, Code::ContentUnread, Code::VaultLocked, Code::StoreConflict],
        handler: handler!(findings::observe),
    },
];
