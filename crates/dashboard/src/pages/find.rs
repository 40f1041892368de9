//! Finding: an id that somebody pasted leads to its page.

use sluice_core::{ApprovalId, CallId, HoldId};
use sluice_gateway::Gateway;
use sluice_services::CallError;

use crate::context::PageAddress;
use crate::reply::DashboardReply;

/// Leads to the page of an id; a text that is none leads to the writes that it may filter.
pub(crate) async fn go(gw: &Gateway, text: &str) -> Result<DashboardReply, CallError> {
    let text = text.trim();
    let page = if let Ok(id) = text.parse::<ApprovalId>() {
        PageAddress::Approval(id)
    } else if let Ok(id) = text.parse::<CallId>() {
        PageAddress::Call(id)
    } else if let Ok(id) = text.parse::<HoldId>() {
        PageAddress::Call(gw.store.hold(id).await?.map_or_else(|| CallId::from_bits(id.bits()), |hold| hold.call))
    } else {
        let encoded = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
        return Ok(DashboardReply::see_other(&format!("/ui/pending?filter={encoded}")));
    };
    Ok(DashboardReply::see_other(&page.path()))
}
