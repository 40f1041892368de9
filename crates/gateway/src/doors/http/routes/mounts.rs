//! Mounted servers.

use sluice_core::refusal::Code;

use super::{ADMIN, VIEWER, handler, shape};
use crate::doors::http::route::{Param, Route};
use crate::doors::http::{mounts, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/mounts",
        name: "listMounts",
        about: "Lists mounted servers.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::Page<mounts::MountView>))],
        refusals: &[],
        handler: handler!(mounts::list),
    },
    Route {
        method: "GET",
        path: "/v1/mounts/{name}",
        name: "getMount",
        about: "Describes a mounted server and its tools.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(mounts::show),
    },
    Route {
        method: "GET",
        path: "/v1/mounts/{name}/waiting",
        name: "listWaitingTools",
        about: "Shows definitions that wait for a person, beside those that were accepted.",
        access: VIEWER,
        stops: false,
        query: &[Param { name: "all", kind: "boolean", about: "Those of tools for which nothing waits, too." }],
        body: None,
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(mounts::waiting),
    },
    Route {
        method: "POST",
        path: "/v1/mounts/reload",
        name: "reloadMounts",
        about: "Reads the mounts of the configuration again: starts what is new, starts again what is another, ends what is gone.",
        access: ADMIN,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(mounts::ReloadedView))],
        refusals: &[Code::MountInvalid],
        handler: handler!(mounts::reload),
    },
    Route {
        method: "POST",
        path: "/v1/mounts/{name}/test",
        name: "testMount",
        about: "Looks at a mounted server now: starts it if it is down, and lists its tools again.",
        access: ADMIN,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(mounts::test),
    },
    Route {
        method: "POST",
        path: "/v1/mounts/{name}/accept",
        name: "acceptTools",
        about: "Accepts definitions that wait, each by the digest of what was shown, and takes a person's word that tools only read.",
        access: ADMIN,
        stops: false,
        query: &[],
        body: shape!(mounts::AcceptBody),
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound, Code::StoreConflict, Code::DoorParameter],
        handler: handler!(mounts::accept),
    },
];
