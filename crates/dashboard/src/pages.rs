//! The pages: each is a list of regions that are rendered alike for the page and for the stream of changes.
//!
//! Takes a page's address and the person; gives its content. Promise: what the stream sends is what the page would show.

pub(crate) mod actions;
mod alerts;
mod approval;
mod approval_form;
mod approvals;
mod batch;
mod call;
mod dead;
pub(crate) mod find;
mod freeze;
pub(crate) mod layout;
mod overview;
mod pending;
mod sessions;
mod write_row;

use sluice_services::CallError;

use crate::context::{PageAddress, PageContext};

/// A part of a page that changes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageRegion {
    pub(crate) id: &'static str,
    pub(crate) html: String,
}

/// Everything between the head and the foot of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageContent {
    pub(crate) title: String,
    pub(crate) regions: Vec<PageRegion>,
    /// The command that shows or does the same.
    pub(crate) command: String,
    /// The request of the HTTP API that shows the same.
    pub(crate) api: String,
    /// Whether a browser without JavaScript may load it again by itself: not where somebody types.
    pub(crate) reloads: bool,
}

/// The content of a page.
pub(crate) async fn content(context: &PageContext<'_>, page: PageAddress) -> Result<PageContent, CallError> {
    match page {
        PageAddress::Overview => overview::content(context).await,
        PageAddress::Approvals => approvals::content(context).await,
        PageAddress::Approval(id) => approval::content(context, id).await,
        PageAddress::Pending => pending::content(context).await,
        PageAddress::Call(id) => call::content(context, id).await,
        PageAddress::Freeze => freeze::content(context).await,
        PageAddress::Dead => dead::content(context).await,
        PageAddress::Alerts => alerts::content(context).await,
        PageAddress::Sessions => sessions::content(context).await,
    }
}
