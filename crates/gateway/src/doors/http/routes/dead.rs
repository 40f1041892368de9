//! Dead letters.

use sluice_core::refusal::Code;

use super::{AGENT, APPROVER, CALL, SERVICE, VIEWER, handler, shape};
use crate::doors::http::route::Route;
use crate::doors::http::{dead, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/dead-letters",
        name: "listDeadLetters",
        about: "Lists writes that ended without their effect, by what they died of.",
        access: VIEWER,
        stops: false,
        query: &[AGENT, SERVICE],
        body: None,
        answers: &[(200, shape!(views::Page<dead::CauseView>))],
        refusals: &[],
        handler: handler!(dead::list),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/retry",
        name: "retryDeadLetters",
        about: "Tries all dead letters of one cause again, or only the oldest.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead::ByCause),
        answers: &[(200, shape!(views::Page<views::HoldView>))],
        refusals: &[Code::StoreNotFound, Code::HoldTooLate, Code::HoldNotFound],
        handler: handler!(dead::retry_cause),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/discard",
        name: "discardDeadLetters",
        about: "Gives up all dead letters of one cause.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead::ByCause),
        answers: &[(200, shape!(views::Page<views::HoldView>))],
        refusals: &[Code::StoreNotFound, Code::HoldTooLate, Code::HoldNotFound],
        handler: handler!(dead::discard_cause),
    },
    Route {
        method: "GET",
        path: "/v1/dead-letters/{buffer_id}",
        name: "getDeadLetter",
        about: "Shows a dead letter with exactly what it was to do.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::HoldView))],
        refusals: &[Code::HoldNotFound],
        handler: handler!(dead::show),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/{buffer_id}/retry",
        name: "retryDeadLetter",
        about: "Gives a dead letter another window; the rules are asked again.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::HoldView))],
        refusals: &[Code::HoldNotFound, Code::HoldTooLate, Code::StoreConflict],
        handler: handler!(dead::retry),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/{buffer_id}/discard",
        name: "discardDeadLetter",
        about: "Gives a dead letter up.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::HoldView))],
        refusals: &[Code::HoldNotFound, Code::HoldTooLate, Code::StoreConflict],
        handler: handler!(dead::discard),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/{buffer_id}/edit",
        name: "editDeadLetter",
        about: "Puts a changed call in the place of a dead letter: a new call, checked from the schema on.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead::EditBody),
        answers: &[(202, shape!(dead::Edited))],
        refusals: &EDIT,
        handler: handler!(dead::edit),
    },
];

/// As a call, and as a dead letter.
#[expect(clippy::indexing_slicing, reason = "a constant: what would be out of bounds does not compile")]
const EDIT: [Code; CALL.len() + 3] = {
    let mut all = [Code::HoldNotFound; CALL.len() + 3];
    let mut n = 0;
    while n < CALL.len() {
        all[n] = CALL[n];
        n += 1;
    }
    all[n] = Code::HoldTooLate;
    all[n + 1] = Code::StoreConflict;
    all
};
