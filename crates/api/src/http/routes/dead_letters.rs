//! Routes for dead letters.

use sluice_core::refusal::Code;

use super::{AGENT, APPROVER, CALL, SERVICE, VIEWER, handler, shape};
use crate::http::route::Route;
use crate::http::{dead_letters, views};

/// The routes.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/v1/dead-letters",
        name: "listDeadLetters",
        about: "Lists writes that ended without their effect, grouped by cause.",
        access: VIEWER,
        stops: false,
        query: &[AGENT, SERVICE],
        body: None,
        answers: &[(200, shape!(views::ListPage<dead_letters::DeadLetterCauseView>))],
        refusals: &[],
        handler: handler!(dead_letters::list),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/retry",
        name: "retryDeadLetters",
        about: "Retries all dead letters with one cause, or only the oldest.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead_letters::DeadLetterCauseBody),
        answers: &[(200, shape!(views::ListPage<views::HoldView>))],
        refusals: &[Code::StoreNotFound, Code::HoldTooLate, Code::HoldNotFound],
        handler: handler!(dead_letters::retry_cause),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/discard",
        name: "discardDeadLetters",
        about: "Gives up all dead letters with one cause.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead_letters::DeadLetterCauseBody),
        answers: &[(200, shape!(views::ListPage<views::HoldView>))],
        refusals: &[Code::StoreNotFound, Code::HoldTooLate, Code::HoldNotFound],
        handler: handler!(dead_letters::discard_cause),
    },
    Route {
        method: "GET",
        path: "/v1/dead-letters/{buffer_id}",
        name: "getDeadLetter",
        about: "Returns a dead letter with its full action.",
        access: VIEWER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::HoldView))],
        refusals: &[Code::HoldNotFound],
        handler: handler!(dead_letters::show),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/{buffer_id}/retry",
        name: "retryDeadLetter",
        about: "Gives a dead letter another window; the rules judge it again.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: None,
        answers: &[(200, shape!(views::HoldView))],
        refusals: &[Code::HoldNotFound, Code::HoldTooLate, Code::StoreConflict],
        handler: handler!(dead_letters::retry),
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
        handler: handler!(dead_letters::discard),
    },
    Route {
        method: "POST",
        path: "/v1/dead-letters/{buffer_id}/edit",
        name: "editDeadLetter",
        about: "Replaces a dead letter by a changed call: a new call, checked from the schema on.",
        access: APPROVER,
        stops: false,
        query: &[],
        body: shape!(dead_letters::EditDeadLetterBody),
        answers: &[(202, shape!(dead_letters::EditedDeadLetterView))],
        refusals: &EDIT,
        handler: handler!(dead_letters::edit),
    },
];

/// The codes of a call, and those of a dead letter.
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
