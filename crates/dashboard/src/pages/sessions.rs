//! Sessions of browsers: who is signed in where, and the button that ends it.

use askama::Template;
use sluice_core::approval::card::escape_invisible;
use sluice_core::ids::DashboardSessionId;
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_store::OperatorRole;

use super::PageContent;
use super::layout::{StampView, region};
use crate::context::PageContext;
use crate::fields::FormFields;

/// A session as the page shows it.
struct SessionLine {
    id: String,
    person: String,
    browser: String,
    made: StampView,
    seen: StampView,
    is_this: bool,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsTemplate<'a> {
    sessions: Vec<SessionLine>,
    csrf: &'a str,
    sees_all: bool,
}

/// The person whose sessions alone may be seen and ended; nobody in particular for an admin.
fn only_of(context: &PageContext<'_>) -> Option<String> {
    (context.visitor.role < OperatorRole::Admin).then(|| context.visitor.person.clone())
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let found = context.gw.store.dashboard_sessions(context.now()).await?;
    let only = only_of(context);
    let own = found.into_iter().filter(|session| only.as_ref().is_none_or(|own| *own == session.person));
    let sessions = own.map(|session| SessionLine {
        id: session.id.to_string(),
        person: session.person,
        browser: escape_invisible(&session.browser),
        made: session.made_at.into(),
        seen: session.seen_at.into(),
        is_this: session.id == context.visitor.session,
    });
    let table =
        SessionsTemplate { sessions: sessions.collect(), csrf: &context.visitor.csrf, sees_all: only.is_none() };
    Ok(PageContent {
        title: "Signed-in browsers".into(),
        regions: vec![region("sessions", &table)?],
        command: "sluice login list".into(),
        api: "GET /v1/dashboard-sessions".into(),
        reloads: false,
    })
}

/// Ends the session that a form names.
pub(super) async fn end(context: &PageContext<'_>, form: &FormFields) -> Result<(), CallError> {
    let id: DashboardSessionId = form.parsed("session")?.ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    context.gw.store.end_dashboard_session(id, context.visitor.by.clone(), only_of(context)).await?;
    context.gw.signals.events.notify_written();
    Ok(())
}
