//! Access to the dashboard, for operators: one-time codes, and the sessions of browsers.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::ids::DashboardSessionId;
use sluice_services::CallError;
use sluice_store::OperatorRole;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// A one-time code that signs the caller in to the dashboard.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SignInCodeView {
    /// The code: shown once. It works once.
    pub code: String,
    /// The address to open, on this gateway. Browsers do not send the part after `#` to any server.
    pub path: String,
    /// Until when it works.
    pub expires_at: String,
}

/// The session of a browser.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DashboardSessionView {
    /// The id of the session.
    pub dashboard_session_id: String,
    /// The person who is signed in.
    pub person: String,
    /// The credential behind it. Revoking it ends the session.
    pub key_id: String,
    /// The browser, by the name it gives itself.
    pub browser: String,
    /// When the person signed in.
    pub signed_in_at: String,
    /// When it was last used, to within a few minutes.
    pub last_used_at: String,
    /// When it ends in any case.
    pub expires_at: String,
}

/// `POST /v1/sign-in-codes`.
pub(super) async fn make(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let code = sluice_dashboard::make_sign_in_code(&visit.gw, visit.principal()?).await?;
    let view = SignInCodeView {
        path: format!("/ui/login#{}", code.expose()),
        code: code.expose().to_owned(),
        expires_at: code.expires_at.to_string(),
    };
    Ok(HttpReply::json(201, &view))
}

/// The person whose sessions alone may be seen and ended; nobody in particular for an admin.
fn only_of(visit: &RoutedRequest) -> Result<Option<String>, CallError> {
    Ok(visit.principal()?.operator().filter(|(_, role)| *role < OperatorRole::Admin).map(|(name, _)| name.to_string()))
}

/// `GET /v1/dashboard-sessions`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let only = only_of(&visit)?;
    let found = visit.gw.store.dashboard_sessions(visit.gw.now()).await?;
    let own = found.into_iter().filter(|session| only.as_ref().is_none_or(|own| *own == session.person));
    let data = own.map(|session| DashboardSessionView {
        dashboard_session_id: session.id.to_string(),
        person: session.person,
        key_id: session.key.to_string(),
        browser: session.browser,
        signed_in_at: session.made_at.to_string(),
        last_used_at: session.seen_at.to_string(),
        expires_at: session.expires_at.to_string(),
    });
    Ok(HttpReply::json(200, &ListPage { data: data.collect(), next_cursor: None, has_more: false }))
}

/// `DELETE /v1/dashboard-sessions/{dashboard_session_id}`.
pub(super) async fn end(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let id: DashboardSessionId = visit.path_param("dashboard_session_id")?;
    visit.gw.store.end_dashboard_session(id, visit.actor()?, only_of(&visit)?).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}
