//! Routes for mounted servers.

use sluice_core::refusal::Code;

use super::{ADMIN, VIEWER, handler, shape};
use crate::http::route::{QueryParam, Route};
use crate::http::{mounts, views};

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
        answers: &[(200, shape!(views::ListPage<mounts::MountView>))],
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
        about: "Shows definitions that wait for a person, with those that were accepted before.",
        access: VIEWER,
        stops: false,
        query: &[QueryParam { name: "all", kind: "boolean", about: "Includes tools for which nothing waits." }],
        body: None,
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(mounts::waiting),
    },
    Route {
        method: "POST",
        path: "/v1/mounts/reload",
        name: "reloadMounts",
        about: "Reloads the mounts of the configuration: starts new servers, restarts changed ones, stops removed ones.",
        access: ADMIN,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(mounts::MountsReloadView))],
        refusals: &[Code::MountInvalid],
        handler: handler!(mounts::reload),
    },
    Route {
        method: "POST",
        path: "/v1/mounts/{name}/test",
        name: "testMount",
        about: "Checks a mounted server now: starts it if it is down, and lists its tools again.",
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
        about: "Accepts waiting definitions, each by the digest of what was shown, and records a person's decision that tools only read.",
        access: ADMIN,
        stops: false,
        query: &[],
        body: shape!(mounts::AcceptToolsBody),
        answers: &[(200, shape!(mounts::MountView))],
        refusals: &[Code::StoreNotFound, Code::StoreConflict, Code::DoorParameter],
        handler: handler!(mounts::accept),
    },
];
