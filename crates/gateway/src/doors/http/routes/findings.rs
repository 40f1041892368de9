//! What was withheld, and what sessions were shown.

use sluice_core::refusal::Code;
use sluice_store::Role;

use super::{APPROVER, CURSOR, LIMIT, VIEWER, handler, shape};
use crate::doors::http::route::{Access, Param, Route};
use crate::doors::http::{findings, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/findings",
        name: "listFindings",
        about: "Lists items that were kept from agents, newest first.",
        access: VIEWER,
        stops: false,
        query: &[CURSOR, LIMIT, Param { name: "open", kind: "boolean", about: "Only those nobody has released." }],
        body: None,
        answers: &[(200, shape!(views::Page<findings::FindingView>))],
        refusals: &[],
        handler: handler!(findings::list),
    },
    Route {
        method: "GET",
        path: "/v1/findings/{finding_id}",
        name: "getFinding",
        about: "Describes a withheld item; gives it to approvers who ask and, once released, to its agent.",
        access: Access::Either(Role::Viewer),
        stops: false,
        query: &[Param { name: "content", kind: "boolean", about: "With the item itself, for approvers." }],
        body: None,
        answers: &[(200, shape!(findings::FindingView))],
        refusals: &[Code::StoreNotFound, Code::VaultLocked],
        handler: handler!(findings::show),
    },
    Route {
        method: "POST",
        path: "/v1/findings/{finding_id}/release",
        name: "releaseFinding",
        about: "Lets an item through that was withheld, after a person has looked.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(findings::Let),
        answers: &[(200, shape!(findings::FindingView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(findings::release),
    },
    Route {
        method: "POST",
        path: "/v1/sessions/{session_id}/observations",
        name: "observe",
        about: "Takes in what a client that acts by itself is about to show its agent, and says what it may show.",
        access: Access::Agent,
        stops: false,
        query: &[],
        body: shape!(findings::Observation),
        answers: &[(200, shape!(findings::Observed))],
        refusals: &[Code::IdentitySession, Code::ContentUnread, Code::VaultLocked, Code::StoreConflict],
        handler: handler!(findings::observe),
    },
];
