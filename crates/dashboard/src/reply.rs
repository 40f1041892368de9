//! Requests and replies of the dashboard, free of any HTTP server.

use std::net::IpAddr;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, Method, header};

/// One request of a browser, with its whole body.
#[derive(Debug)]
pub struct DashboardRequest {
    /// The method.
    pub method: Method,
    /// The path, as it was sent.
    pub path: String,
    /// The query, as it was sent.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; empty for a request without one.
    pub body: Bytes,
    /// The address of the other end of the connection.
    pub peer: IpAddr,
    /// Whether the listener itself speaks TLS.
    pub is_tls: bool,
}

/// The body of a reply.
pub enum DashboardBody {
    /// Complete bytes.
    Whole(Bytes),
    /// A stream of events.
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl std::fmt::Debug for DashboardBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DashboardBody")
    }
}

/// A reply.
#[derive(Debug)]
pub struct DashboardReply {
    /// The HTTP status.
    pub status: u16,
    /// The headers, besides those that every reply of the gateway has.
    pub headers: Vec<(HeaderName, String)>,
    /// The body.
    pub body: DashboardBody,
}

/// What a page of the dashboard may load and do: its own style, script and pictures, forms and streams to itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

impl DashboardReply {
    pub(crate) fn new(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = vec![
            (header::CONTENT_TYPE, kind.to_owned()),
            (header::CONTENT_SECURITY_POLICY, POLICY.to_owned()),
            (header::X_FRAME_OPTIONS, "DENY".to_owned()),
            (header::REFERRER_POLICY, "same-origin".to_owned()),
            (header::CACHE_CONTROL, "no-store".to_owned()),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin".to_owned()),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin".to_owned()),
            (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()".to_owned()),
            (HeaderName::from_static("x-robots-tag"), "noindex, nofollow".to_owned()),
        ];
        Self { status, headers, body: DashboardBody::Whole(body.into()) }
    }

    pub(crate) fn page(status: u16, html: String) -> Self {
        Self::new(status, "text/html; charset=utf-8", html)
    }

    /// Sends the browser to another page of the dashboard, so that reloading does not send a form again.
    pub(crate) fn see_other(to: &str) -> Self {
        Self::new(303, "text/plain; charset=utf-8", Bytes::new()).with(header::LOCATION, to)
    }

    pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        let reply = Self::new(200, "text/event-stream", Bytes::new());
        Self { body: DashboardBody::Events(Box::pin(stream)), ..reply }
            .with(HeaderName::from_static("x-accel-buffering"), "no")
    }

    /// With a header; a cookie is added, any other header replaces an earlier one of its name.
    pub(crate) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        if name != header::SET_COOKIE {
            self.headers.retain(|(known, _)| *known != name);
        }
        self.headers.push((name, value.into()));
        self
    }
}
