//! Routes for channels to people.

use sluice_core::refusal::Code;

use super::{APPROVER, VIEWER, handler, shape};
use crate::http::route::Route;
use crate::http::{channels, status, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/channels",
        name: "listChannels",
        about: "Lists the channels over which people are asked, and how well they work.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::ListPage<status::ChannelStatusView>))],
        refusals: &[],
        handler: handler!(channels::list),
    },
    Route {
        method: "POST",
        path: "/v1/channels/{name}/test",
        name: "testChannel",
        about: "Sends a test message to every person that a channel reaches, and reports the result of each.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(channels::ChannelTestView))],
        refusals: &[Code::StoreNotFound],
        handler: handler!(channels::test),
    },
];
