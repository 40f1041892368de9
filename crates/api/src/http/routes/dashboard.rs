//! Routes for access to the dashboard.

use sluice_core::refusal::Code;

use super::{VIEWER, handler, shape};
use crate::http::route::Route;
use crate::http::{dashboard_sessions, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "POST",
        path: "/v1/sign-in-codes",
        name: "makeSignInCode",
        about: "Makes a code that signs the caller in to the dashboard: once, within 10 minutes, with the caller's role.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(201, shape!(dashboard_sessions::SignInCodeView))],
        refusals: &[],
        handler: handler!(dashboard_sessions::make),
    },
    Route {
        method: "GET",
        path: "/v1/dashboard-sessions",
        name: "listDashboardSessions",
        about: "Lists the browsers that are signed in to the dashboard: the caller's own, or all of them for an admin.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::ListPage<dashboard_sessions::DashboardSessionView>))],
        refusals: &[],
        handler: handler!(dashboard_sessions::list),
    },
    Route {
        method: "DELETE",
        path: "/v1/dashboard-sessions/{dashboard_session_id}",
        name: "endDashboardSession",
        about: "Signs a browser out of the dashboard: the caller's own, or any for an admin.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(204, None)],
        refusals: &[Code::StoreNotFound],
        handler: handler!(dashboard_sessions::end),
    },
];
