//! The frame of every page: navigation with counts, freezes in force, notices, and the command that does the same.

use askama::Template;
use sluice_core::refusal::Code;
use sluice_gateway::DiskSpace;
use sluice_services::CallError;
use sluice_services::events::EventCursor;
use sluice_store::{AlertFilter, MessageSeverity};

use super::{PageContent, PageRegion, content};
use crate::assets::{ADDRESSES, AssetAddresses};
use crate::context::{PageAddress, PageContext, SignedInVisitor};
use crate::fields::FormFields;
use crate::reply::DashboardReply;

/// Most open approvals and alerts that are counted.
const COUNTED: u32 = 1_000;

/// What just happened, at the top of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageNotice {
    pub(crate) text: String,
    /// `done` or `problem`.
    pub(crate) class: &'static str,
}

#[derive(Template)]
#[template(path = "layout.html")]
struct LayoutTemplate<'a> {
    assets: &'static AssetAddresses,
    visitor: &'a SignedInVisitor,
    content: &'a PageContent,
    frame: &'a [PageRegion; 2],
    notice: Option<&'a PageNotice>,
    section: &'static str,
    address: String,
    /// The page with its query, for the stream and for forms that come back.
    back: String,
    now: i64,
    cursor: String,
    release: &'static str,
}

#[derive(Template)]
#[template(path = "bare.html")]
struct BareTemplate<'a> {
    assets: &'static AssetAddresses,
    title: &'a str,
    theme: &'static str,
    inside: String,
}

#[derive(Template)]
#[template(path = "nav.html")]
struct NavTemplate {
    section: &'static str,
    approvals: usize,
    pending: u64,
    dead: u64,
    alerts: usize,
}

/// A freeze as the banner and the page of freezes show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreezeLine {
    pub(crate) scope: String,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) since: StampView,
    /// Whether a person placed it, so that a person can lift it here.
    pub(crate) can_lift: bool,
    pub(crate) agent: String,
    pub(crate) service: String,
}

/// A moment: in milliseconds for the script, and as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StampView {
    pub(crate) millis: i64,
    pub(crate) machine: String,
    pub(crate) text: String,
}

impl From<sluice_core::UtcMillis> for StampView {
    fn from(at: sluice_core::UtcMillis) -> Self {
        let machine = at.to_string();
        // `2026-11-19T21:42:07.123Z` without its fraction, as people write it.
        let text = match (machine.get(..10), machine.get(11..19)) {
            (Some(day), Some(time)) => format!("{day} {time} UTC"),
            _ => machine.clone(),
        };
        Self { millis: at.as_millis(), machine, text }
    }
}

#[derive(Template)]
#[template(path = "banner.html")]
struct BannerTemplate<'a> {
    freezes: &'a [FreezeLine],
    warnings: &'a [String],
}

#[derive(Template)]
#[template(path = "sorry.html")]
struct SorryTemplate<'a> {
    text: &'a str,
    code: &'a str,
}

/// A template as text.
pub(crate) fn html(template: &impl Template) -> Result<String, CallError> {
    template.render().map_err(|_| CallError::new(Code::GatewayInternal))
}

/// A region of a page.
pub(crate) fn region(id: &'static str, template: &impl Template) -> Result<PageRegion, CallError> {
    Ok(PageRegion { id, html: html(template)? })
}

impl PageNotice {
    /// The notice that a redirect asks for. Only known words count: an address never brings text of its own.
    pub(crate) fn of_query(query: &FormFields) -> Option<Self> {
        let count: u32 = query.get("n").parse().unwrap_or(1).min(100_000);
        let late: u32 = query.get("late").parse().unwrap_or(0).min(100_000);
        let writes = if count == 1 { "1 write".to_owned() } else { format!("{count} writes") };
        let too_late = match late {
            0 => String::new(),
            1 => " 1 write was already on its way.".to_owned(),
            n => format!(" {n} writes were already on their way."),
        };
        let text = match query.get("done") {
            "approved" => "Approved. You can still cancel until it leaves.".to_owned(),
            "denied" => "Denied. Nothing was sent.".to_owned(),
            "decided" => "Your decision counts.".to_owned(),
            "waiting" => "Noted. Another person has to approve as well.".to_owned(),
            "changed" => "Approved with your changes.".to_owned(),
            "cancelled" => format!("Cancelled {writes}. Nothing of it was sent.{too_late}"),
            "extended" => "Held longer.".to_owned(),
            "sent" => "It leaves now.".to_owned(),
            "frozen" => "Frozen. Nothing covered by it starts until it is lifted.".to_owned(),
            "unfrozen" => "Lifted. Held writes leave when they are due.".to_owned(),
            "retried" => format!("Trying {writes} again, after another undo window."),
            "discarded" => format!("Gave up {writes}."),
            "acknowledged" => "Acknowledged.".to_owned(),
            "ended" => "Signed that browser out.".to_owned(),
            _ => return None,
        };
        Some(Self { text, class: "done" })
    }

    /// The notice about an action that was refused.
    pub(crate) fn of_refusal(no: &CallError) -> Self {
        let text = format!("Nothing was done: {}.", no.refusal);
        Self { text, class: "problem" }
    }
}

/// The two regions that every page has: navigation and banner.
pub(crate) async fn frame(context: &PageContext<'_>, section: &'static str) -> Result<[PageRegion; 2], CallError> {
    let gw = context.gw;
    let store = gw.store.with_status_reads();
    let by_state = store.holds_by_state().await?;
    let count = |states: &[&str]| {
        by_state.iter().filter(|(state, _)| states.contains(&state.as_str())).map(|(_, count)| count).sum()
    };
    let severe = AlertFilter { open_only: true, severity_at_least: MessageSeverity::Warning, agent: None };
    let nav = NavTemplate {
        section,
        approvals: store.open_approvals(COUNTED).await?.len(),
        pending: count(&["held", "ready", "retrying", "preparing", "armed", "in_doubt"]),
        dead: count(&["dead", "needs_human", "stale"]),
        alerts: store.alerts(severe, None, COUNTED).await?.len(),
    };
    let freezes = super::freeze::lines(gw).await?;
    let mut warnings = Vec::new();
    match gw.disk_space() {
        DiskSpace::Enough => {}
        DiskSpace::Low => warnings.push("The disk is nearly full: new writes may be refused soon.".to_owned()),
        DiskSpace::None => warnings.push("The disk is full: calls are refused, stopping still works.".to_owned()),
    }
    if gw.clock_is_suspect() {
        warnings.push("The clock of the machine jumped a moment ago: nothing is sent until it is checked.".to_owned());
    }
    Ok([region("nav", &nav)?, region("banner", &BannerTemplate { freezes: &freezes, warnings: &warnings })?])
}

/// A whole page.
pub(crate) async fn page(
    context: &PageContext<'_>,
    page: PageAddress,
    notice: Option<PageNotice>,
    status: u16,
) -> Result<DashboardReply, CallError> {
    // The cursor is read first: a change after it is in the page already or comes with the stream.
    let cursor = EventCursor::present(&context.gw.store).await?.to_string();
    let content = content(context, page).await?;
    let frame = frame(context, page.section()).await?;
    let back = address_with_filter(context, page);
    let layout = LayoutTemplate {
        assets: &ADDRESSES,
        visitor: context.visitor,
        content: &content,
        frame: &frame,
        notice: notice.as_ref(),
        section: page.section(),
        address: page.path(),
        back,
        now: context.now().as_millis(),
        cursor,
        release: context.gw.about.release,
    };
    Ok(DashboardReply::page(status, html(&layout)?))
}

/// The address of a page with the parts of the query that filter it.
pub(crate) fn address_with_filter(context: &PageContext<'_>, page: PageAddress) -> String {
    let kept = context
        .query
        .0
        .iter()
        .filter(|(name, value)| !["done", "n", "late"].contains(&name.as_str()) && !value.is_empty());
    let encode =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let query: Vec<String> = kept.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    if query.is_empty() { page.path() } else { format!("{}?{}", page.path(), query.join("&")) }
}

/// A page without navigation, for a person who is not signed in.
pub(crate) fn bare(title: &str, theme: &'static str, inside: String) -> Result<String, CallError> {
    html(&BareTemplate { assets: &ADDRESSES, title, theme, inside })
}

/// A page that says what went wrong.
pub(crate) fn sorry(no: &CallError, theme: &'static str) -> DashboardReply {
    let (code, text) = (no.refusal.code(), no.refusal.to_string());
    let inside = html(&SorryTemplate { text: &text, code: code.as_str() });
    let page = inside.and_then(|inside| bare("This page cannot be shown", theme, inside));
    match page {
        Ok(page) => DashboardReply::page(code.status(), page),
        Err(_) => DashboardReply::page(500, "This page cannot be shown.".to_owned()),
    }
}
