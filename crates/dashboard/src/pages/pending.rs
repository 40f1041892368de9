//! Pending writes: the outbox with countdowns.

use askama::Template;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, Millis, ServiceName};
use sluice_gateway::operating;
use sluice_gateway::rooms::hold;
use sluice_services::CallError;
use sluice_store::{HoldFilter, HoldTiming, OperatorRole};

use super::PageContent;
use super::approval::picked;
use super::layout::region;
use super::write_row::WriteRow;
use crate::context::PageContext;
use crate::fields::FormFields;

/// Writes on one page.
const PAGE: u32 = 50;
/// Most writes that one form cancels.
const MOST: usize = 10_000;
/// By how much the button holds longer.
const LONGER: Millis = Millis::from_mins(10);
/// Every state in which a write has not ended and nobody has to look at it.
const OPEN: [&str; 6] = ["held", "ready", "preparing", "armed", "in_doubt", "awaiting_approval"];

#[derive(Template)]
#[template(path = "pending.html")]
struct PendingTemplate<'a> {
    rows: Vec<WriteRow>,
    csrf: &'a str,
    can_act: bool,
    filter: PendingFilter,
    next: Option<String>,
    back: String,
}

/// The filter as it was typed: `agent:clerk service:mail state:held`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PendingFilter {
    text: String,
    agent: Option<AgentName>,
    service: Option<ServiceName>,
    state: Option<&'static str>,
}

impl PendingFilter {
    fn parse(text: &str) -> Result<Self, CallError> {
        let mut filter = Self { text: text.trim().to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            let bad = || {
                CallError::with_text(
                    Code::DoorParameter,
                    &format!(
                        "`{}` is not a filter; use agent:NAME, service:NAME and state:NAME",
                        word.chars().take(60).collect::<String>()
                    ),
                )
            };
            match word.split_once(':') {
                Some(("agent", name)) => filter.agent = Some(name.parse().map_err(|_| bad())?),
                Some(("service", name)) => filter.service = Some(name.parse().map_err(|_| bad())?),
                Some(("state", name)) => {
                    filter.state = Some(OPEN.into_iter().find(|known| *known == name).ok_or_else(bad)?);
                }
                _ => return Err(bad()),
            }
        }
        Ok(filter)
    }

    fn holds(&self) -> HoldFilter {
        let states = match self.state {
            Some(state) => vec![state],
            None => OPEN.into_iter().filter(|state| *state != "awaiting_approval").collect(),
        };
        let (agent, service) = (self.agent.clone(), self.service.clone());
        HoldFilter { agent, service, states, newest_first: true, ..HoldFilter::default() }
    }
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let (gw, query) = (context.gw, context.query);
    let filter = PendingFilter::parse(query.get("filter"))?;
    let after: Option<HoldId> = query.parsed("after")?;
    let mut found = gw.store.holds_page(filter.holds(), after, PAGE + 1).await?;
    let next = (found.len() > PAGE as usize).then(|| found.get(PAGE as usize - 1).map(|last| last.id.to_string()));
    found.truncate(PAGE as usize);
    let of = |name: &str, value: Option<String>| value.map(|value| format!(" --{name} {value}")).unwrap_or_default();
    let command = format!(
        "sluice holds list{}{}",
        of("agent", filter.agent.as_ref().map(ToString::to_string)),
        of("service", filter.service.as_ref().map(ToString::to_string))
    );
    let back = super::layout::address_with_filter(context, crate::context::PageAddress::Pending);
    let table = PendingTemplate {
        rows: found.iter().map(WriteRow::of).collect(),
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
        filter,
        next: next.flatten(),
        back,
    };
    Ok(PageContent {
        title: "Pending writes".into(),
        regions: vec![region("pending", &table)?],
        command,
        api: "GET /v1/calls?state=held".into(),
        reloads: true,
    })
}

/// Does something to one write. Gives the word for the notice.
pub(super) async fn one(context: &PageContext<'_>, id: HoldId, verb: &str) -> Result<&'static str, CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let (gw, by) = (context.gw, context.visitor.by.clone());
    match verb {
        "cancel" => hold::stop(gw, id, by).await.map(|_| "cancelled"),
        "extend" => operating::retime(gw, id, by, HoldTiming::Longer(LONGER)).await.map(|_| "extended"),
        "send" => operating::retime(gw, id, by, HoldTiming::Now).await.map(|_| "sent"),
        _ => Err(CallError::new(Code::DoorNotFound)),
    }
}

/// Cancels many writes: the ticked ones, or everything that matches the filter. Gives how many were stopped and how
/// many were too late.
pub(super) async fn cancel_many(context: &PageContext<'_>, form: &FormFields) -> Result<(usize, usize), CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let gw = context.gw;
    let ids = match form.get("which") {
        "all" => matching(context, &PendingFilter::parse(form.get("filter"))?).await?,
        _ => picked(form, "pick")?,
    };
    if ids.is_empty() {
        return Err(CallError::with_text(
            Code::SchemaMissingArgument,
            "tick the writes to cancel, then press the button again",
        ));
    }
    let (mut stopped, mut late) = (0, 0);
    for id in ids {
        match hold::stop(gw, id, context.visitor.by.clone()).await {
            Ok(_) => stopped += 1,
            Err(no) if [Code::HoldTooLate, Code::HoldNotFound].contains(&no.refusal.code()) => late += 1,
            Err(no) => return Err(no),
        }
    }
    if stopped == 0 {
        return Err(CallError::with_text(
            Code::HoldTooLate,
            "it is too late: none of these writes can be stopped any more",
        ));
    }
    Ok((stopped, late))
}

async fn matching(context: &PageContext<'_>, filter: &PendingFilter) -> Result<Vec<HoldId>, CallError> {
    let mut found: Vec<HoldId> = Vec::new();
    while found.len() < MOST {
        let page = context.gw.store.holds_page(filter.holds(), found.last().copied(), 500).await?;
        if page.is_empty() {
            break;
        }
        found.extend(page.iter().map(|hold| hold.id));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_understood_or_refused_and_never_ignored() {
        let filter = PendingFilter::parse(" agent:clerk  state:held ").unwrap();
        assert_eq!((filter.agent.unwrap().as_str(), filter.state), ("clerk", Some("held")));
        for bad in ["clerk", "agent:", "state:done", "color:red", "agent:<script>"] {
            assert!(PendingFilter::parse(bad).is_err(), "{bad}");
        }
    }
}
