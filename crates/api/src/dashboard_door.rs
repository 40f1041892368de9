//! The dashboard at the HTTP door: reads a browser's request within its limits, and sends the reply.
//!
//! Promise: a request with a foreign host, or a form that is too large or too slow, never reaches the dashboard.

use std::net::SocketAddr;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use sluice_core::ids::RequestId;
use sluice_core::refusal::Code;
use sluice_dashboard::{Dashboard, DashboardBody, DashboardReply, DashboardRequest, LONGEST_FORM, SignInCode};
use sluice_gateway::Gateway;
use sluice_gateway::rooms::identity;
use sluice_services::CallError;
use sluice_store::{AccessKeyKind, OperatorRole};
use tokio::time::timeout;

use super::http::check_host;
use super::http::reply::{HttpReply, HttpReplyBody};

/// Where people begin.
const OVERVIEW: &str = "/ui";

/// Whether a request is for the dashboard: one of its pages, or a browser at the root of the gateway.
pub(crate) fn is_for_dashboard<B>(request: &Request<B>) -> bool {
    sluice_dashboard::is_at(request.uri().path()) || is_browser_at_root(request)
}

/// Programs get a problem document at the root, as at every unknown address.
fn is_browser_at_root<B>(request: &Request<B>) -> bool {
    let accepts = request.headers().get_all(header::ACCEPT).iter();
    let is_html = accepts.filter_map(|kinds| kinds.to_str().ok()).any(|kinds| kinds.contains("text/html"));
    request.uri().path() == "/" && request.method() == Method::GET && is_html
}

/// Handles one request.
///
/// # Errors
/// When the request names a foreign host, or its body cannot be read within its limits.
pub(crate) async fn visit(
    gw: &Gateway,
    dashboard: &Dashboard,
    request: Request<Incoming>,
    (peer, id): (SocketAddr, RequestId),
) -> Result<Response<HttpReplyBody>, CallError> {
    check_host(gw, request.headers())?;
    if is_browser_at_root(&request) {
        let mut response = HttpReply::nothing().into_response(id);
        *response.status_mut() = StatusCode::SEE_OTHER;
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(OVERVIEW));
        return Ok(response);
    }
    let (head, body) = request.into_parts();
    let patience = gw.config.limits.body_timeout.as_duration();
    let read = timeout(patience, Limited::new(body, LONGEST_FORM).collect()).await;
    let body = match read {
        Err(_) => return Err(CallError::new(Code::DoorTooSlow)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(CallError::new(Code::DoorTooLarge)),
        Ok(Err(_)) => return Err(CallError::with_text(Code::DoorHeaders, "the body ended before it was complete")),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    let reply = dashboard
        .visit(DashboardRequest {
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            body,
            peer: peer.ip(),
            is_tls: gw.config.tls.is_some(),
        })
        .await;
    Ok(response(reply, id))
}

fn response(reply: DashboardReply, id: RequestId) -> Response<HttpReplyBody> {
    let DashboardReply { status, headers, body } = reply;
    let sent = match body {
        DashboardBody::Whole(bytes) => HttpReply::bytes(status, "text/html; charset=utf-8", bytes),
        DashboardBody::Events(events) => HttpReply::stream(events),
    };
    let mut response: Response<HttpReplyBody> = sent.into_response(id);
    let mut fresh = Vec::new();
    for (name, value) in headers {
        let Ok(value) = HeaderValue::from_str(&value) else { continue };
        // The first of a name replaces what every reply has; cookies are added to each other.
        if fresh.contains(&name) {
            response.headers_mut().append(name, value);
        } else {
            response.headers_mut().insert(name.clone(), value);
            fresh.push(name);
        }
    }
    response
}

/// A one-time code for the oldest admin, if nobody was ever signed in to the dashboard.
///
/// # Errors
/// When the database cannot be read or the code cannot be recorded.
pub async fn first_sign_in_code(gw: &Gateway) -> Result<Option<SignInCode>, CallError> {
    if gw.store.was_dashboard_used().await? {
        return Ok(None);
    }
    let now = gw.now();
    let is_admin = |kind: &AccessKeyKind| matches!(kind, AccessKeyKind::Operator(_, OperatorRole::Admin));
    let admin = gw.store.keys().await?.into_iter().find(|key| key.is_live(now) && is_admin(&key.kind));
    let Some(admin) = admin else { return Ok(None) };
    let principal = identity::principal_of_key(gw, &admin.hash)?;
    sluice_dashboard::make_sign_in_code(gw, &principal).await.map(Some)
}
