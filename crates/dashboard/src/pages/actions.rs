//! The forms of the dashboard: each names what it does by its address, and leads back to a page.

use sluice_core::refusal::Code;
use sluice_services::CallError;

use super::layout::{self, PageNotice};
use super::{alerts, approval_form, dead, freeze, pending, sessions};
use crate::context::{PageAddress, PageContext, own_address};
use crate::fields::FormFields;
use crate::reply::DashboardReply;

/// Does what a form says, and leads to the page where its effect shows. A refusal is shown on the page that the form was
/// on, with everything that was typed.
pub(crate) async fn act(context: &PageContext<'_>, path: &str, form: &FormFields) -> Result<DashboardReply, CallError> {
    let parts: Vec<&str> = path.trim_start_matches("/ui/").split('/').collect();
    let (back, done) = match parts.as_slice() {
        ["approvals", id, verb @ ("decide" | "change")] => {
            let id = id.parse().map_err(|_| CallError::new(Code::ApprovalNotFound))?;
            let done = match *verb {
                "decide" => approval_form::decide(context, id, form).await,
                _ => approval_form::change(context, id, form).await,
            };
            (PageAddress::Approval(id).path(), done.map(str::to_owned))
        }
        ["holds", id, verb] => {
            let id = id.parse().map_err(|_| CallError::new(Code::HoldNotFound))?;
            (own_address(form.get("back")), pending::one(context, id, verb).await.map(str::to_owned))
        }
        ["pending", "cancel"] => {
            let done = pending::cancel_many(context, form).await;
            (own_address(form.get("back")), done.map(|(stopped, late)| format!("cancelled&n={stopped}&late={late}")))
        }
        ["freeze"] => (PageAddress::Freeze.path(), freeze::place(context, form).await.map(|()| "frozen".into())),
        ["unfreeze"] => (PageAddress::Freeze.path(), freeze::lift(context, form).await.map(|()| "unfrozen".into())),
        ["dead", verb @ ("retry" | "discard")] => {
            let done = dead::settle(context, form, verb).await;
            (PageAddress::Dead.path(), done.map(|(word, count)| format!("{word}&n={count}")))
        }
        ["alerts", "acknowledge"] => {
            (PageAddress::Alerts.path(), alerts::acknowledge(context, form).await.map(|()| "acknowledged".into()))
        }
        ["sessions", "end"] => {
            (PageAddress::Sessions.path(), sessions::end(context, form).await.map(|()| "ended".into()))
        }
        _ => return Err(CallError::new(Code::DoorNotFound)),
    };
    match done {
        Ok(done) => {
            let joint = if back.contains('?') { '&' } else { '?' };
            Ok(DashboardReply::see_other(&format!("{back}{joint}done={done}")))
        }
        Err(no) if no.refusal.code().status() >= 500 => Err(no),
        Err(no) => {
            let (path, query) = back.split_once('?').unwrap_or((&back, ""));
            let page = PageAddress::parse(path).unwrap_or(PageAddress::Overview);
            let query = FormFields::parse(query)?;
            let again = PageContext { query: &query, ..*context };
            layout::page(&again, page, Some(PageNotice::of_refusal(&no)), no.refusal.code().status()).await
        }
    }
}
