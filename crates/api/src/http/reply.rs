//! Replies: an answer as bytes. Refusals are problem documents (RFC 9457).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use http::{HeaderValue, Response, header};
use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Frame, SizeHint};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::ids::RequestId;
use sluice_core::refusal::{Code, RetryAdvice};
use sluice_services::CallError;
use sluice_services::value::put;

/// A body: complete bytes, or a stream of events.
pub enum HttpReplyBody {
    /// Complete bytes.
    Whole(Option<Bytes>),
    /// A stream of parts.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// A body made by another service.
    Boxed(BoxBody<Bytes, Infallible>),
}

impl std::fmt::Debug for HttpReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

impl hyper::body::Body for HttpReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(_) => false,
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct HttpReply {
    status: u16,
    kind: &'static str,
    body: HttpReplyBody,
    retry_after: Option<u64>,
    challenge: bool,
    replayed: bool,
}

impl HttpReply {
    /// A JSON answer with a status.
    #[must_use]
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).unwrap_or_default();
        Self::bytes(status, "application/json", bytes)
    }

    /// An answer with bytes of a content type.
    #[must_use]
    pub fn bytes(status: u16, kind: &'static str, bytes: impl Into<Bytes>) -> Self {
        let body = HttpReplyBody::Whole(Some(bytes.into()));
        Self { status, kind, body, retry_after: None, challenge: false, replayed: false }
    }

    /// An empty answer.
    #[must_use]
    pub fn nothing() -> Self {
        let body = HttpReplyBody::Whole(None);
        Self { status: 204, kind: "", body, retry_after: None, challenge: false, replayed: false }
    }

    /// An answer that is a stream of events.
    #[must_use]
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        let body = HttpReplyBody::Stream(Box::pin(stream));
        Self { status: 200, kind: "text/event-stream", body, retry_after: None, challenge: false, replayed: false }
    }

    /// Marks the answer as one to a request that was answered before.
    #[must_use]
    pub fn as_replayed(self) -> Self {
        Self { replayed: true, ..self }
    }

    /// An answer that is a refusal.
    #[must_use]
    pub fn refuse(no: CallError, request: RequestId) -> Self {
        let CallError { refusal, call, rule, other, .. } = no;
        let code = refusal.code();
        let mut problem = json!({
            "type": format!("urn:sluice:problem:{code}"),
            "title": code.meaning(),
            "status": code.status(),
            "detail": refusal.text(),
            "code": code.as_str(),
            "hint": refusal.hint(),
            "retry": refusal.retry().as_str(),
            "request_id": request,
        });
        let retry_after = match refusal.retry() {
            RetryAdvice::After(span) => {
                put(&mut problem, "retry_after_ms", span.as_millis());
                Some(span.as_millis().div_ceil(1000))
            }
            _ => None,
        };
        for (name, value) in [("call_id", call.map(|call| call.to_string())), ("rule", rule), ("other", other)] {
            if let Some(value) = value {
                put(&mut problem, name, value);
            }
        }
        let challenge = code.status() == 401;
        let kind = "application/problem+json";
        Self { retry_after, challenge, ..Self::bytes(code.status(), kind, problem.to_string().into_bytes()) }
    }

    /// The answer in the form that hyper sends.
    #[must_use]
    pub fn into_response(self, request: RequestId) -> Response<HttpReplyBody> {
        let Self { status, kind, body, retry_after, challenge, replayed } = self;
        let streams = matches!(body, HttpReplyBody::Stream(_));
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let mut set = |name: header::HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if !kind.is_empty() {
            set(header::CONTENT_TYPE, kind);
        }
        set(header::CACHE_CONTROL, "no-store");
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::HeaderName::from_static("x-request-id"), &request.to_string());
        if streams {
            set(header::HeaderName::from_static("x-accel-buffering"), "no");
        }
        if let Some(seconds) = retry_after {
            set(header::RETRY_AFTER, &seconds.to_string());
        }
        if challenge {
            set(header::WWW_AUTHENTICATE, "Bearer");
        }
        if replayed {
            set(header::HeaderName::from_static("idempotent-replayed"), "true");
        }
        response
    }
}

/// The problem document of a code, for examples in the API description.
#[must_use]
pub fn example(code: Code) -> Value {
    json!({
        "type": format!("urn:sluice:problem:{code}"), "title": code.meaning(), "status": code.status(),
        "detail": code.meaning(), "code": code.as_str(), "hint": code.hint(), "retry": code.retry().as_str(),
    })
}
