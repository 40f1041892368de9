//! Lists of held writes, each with what is wrong with it.

use sluice_core::hold::Hold;
use sluice_services::CallError;
use sluice_services::failing::{FailingView, FailureAudience, shows_error};
use sluice_store::Store;

use super::HoldView;

/// Writes as doors list them, each with what is wrong with it.
///
/// # Errors
/// When the database cannot be read.
pub async fn holds(store: &Store, holds: &[Hold], audience: FailureAudience) -> Result<Vec<HoldView>, CallError> {
    let asked: Vec<&Hold> = holds.iter().filter(|hold| shows_error(hold)).collect();
    let found = store.attempt_failures(asked.iter().map(|hold| hold.id).collect()).await?;
    let mut failures: std::collections::HashMap<_, _> = asked.iter().map(|hold| hold.id).zip(found).collect();
    let view = |hold: &Hold| {
        let failure = failures.remove(&hold.id).flatten();
        HoldView { failing: FailingView::with(hold, failure, audience), ..HoldView::of(hold) }
    };
    Ok(holds.iter().map(view).collect())
}
