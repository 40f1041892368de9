//! One trip over the wire and back.
//!
//! Takes a request that may leave; gives the reply, or where it was lost. Promise: whether any byte of the request
//! left is counted, not guessed; a request goes on a second line only if the first took nothing of it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use http_body_util::Full;
use sluice_core::Span;
use tokio::time::timeout;

use super::address::Target;
use super::allow::Connection;
use super::credential::{Added, Credential};
use super::headers;
use super::no::{EgressNo, Failed, Phase, What};
use super::pool::{Open, Place};
use super::reply::{self, Bounds};
use super::wire::Meter;
use super::{Answer, Egress};

/// How long a kept line may take to say that it is free.
const READY: Span = Span::from_millis(100);

/// A trip and how far it has come.
pub(super) struct Trip<'a> {
    connection: &'a Connection,
    target: &'a Target,
    is_read: bool,
    progress: Mutex<Progress>,
}

/// What is sent.
pub(super) struct Load<'a> {
    pub method: &'a Method,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub credential: Option<&'a Credential>,
}

/// How far it has come.
struct Progress {
    phase: Phase,
    /// The line's meter, and what it showed before the request.
    line: Option<(Meter, u64, u64)>,
}

/// A reply as it came.
pub(super) struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    body: Bytes,
}

impl<'a> Trip<'a> {
    pub(super) fn new(connection: &'a Connection, target: &'a Target, is_read: bool) -> Self {
        let progress = Mutex::new(Progress { phase: Phase::Dns, line: None });
        Self { connection, target, is_read, progress }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It took too long, wherever it is now.
    pub(super) fn too_slow(&self) -> Failed {
        self.lost(What::TooSlow)
    }

    /// It was lost, wherever it is now.
    fn lost(&self, what: What) -> Failed {
        let progress = self.progress();
        let Some((meter, sent, received)) = &progress.line else {
            return Failed { phase: progress.phase, what, sent: false };
        };
        let (left, came) = (meter.sent() > *sent, meter.received() > *received);
        let phase = match progress.phase {
            Phase::Reply => Phase::Reply,
            _ if came => Phase::After,
            _ if left => Phase::BeforeFirstByte,
            _ => Phase::Connect,
        };
        Failed { phase, what, sent: left }
    }

    /// There and back.
    pub(super) async fn walk(&self, egress: &Egress, load: Load<'_>) -> Result<Reply, EgressNo> {
        let request = self.request(load)?;
        let place = Place {
            connection: self.connection.name.clone(),
            host: self.target.host().to_owned(),
            port: self.target.port(),
            tls: self.target.is_tls(),
        };
        let kept = self.kept(egress, &place).await;
        let was_kept = kept.is_some();
        let open = match kept {
            Some(open) => open,
            None => self.fresh(egress).await?,
        };
        let (response, open) = match self.ask(open, request).await {
            Ok(answered) => answered,
            // The line was closed while it was kept, and took nothing: the request is as new.
            Err((_, Some(request))) if was_kept => {
                let open = self.fresh(egress).await?;
                self.ask(open, *request).await.map_err(|(failed, _)| failed)?
            }
            Err((failed, _)) => return Err(failed.into()),
        };
        self.progress().phase = Phase::Reply;
        let (head, body) = response.into_parts();
        let encodings: Vec<&str> =
            head.headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?")).collect();
        let encoding = (!encodings.is_empty()).then(|| encodings.join(",").to_ascii_lowercase());
        let bounds = Bounds { most: self.connection.max_answer, idle: self.connection.idle_timeout };
        let body = reply::read(body, encoding.as_deref(), bounds).await?;
        egress.pool.keep(place, open, egress.clock.since_boot());
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// A line that was kept and is free.
    async fn kept(&self, egress: &Egress, place: &Place) -> Option<Open> {
        while let Some(mut open) = egress.pool.take(place, self.is_read, egress.clock.since_boot()) {
            if let Ok(Ok(())) = timeout(READY.as_duration(), open.sender.ready()).await {
                return Some(open);
            }
        }
        None
    }

    async fn fresh(&self, egress: &Egress) -> Result<Open, EgressNo> {
        {
            let mut progress = self.progress();
            progress.line = None;
            progress.phase = Phase::Dns;
        }
        let reached = |phase| self.progress().phase = phase;
        let (line, meter) = egress.wire.connect(self.target, &self.connection.allow_addresses, reached).await?;
        egress.pool.start(line, meter).await
    }

    /// Sends the request. A request that never left is given back.
    async fn ask(
        &self,
        mut open: Open,
        request: Sendable,
    ) -> Result<(Received, Open), (Failed, Option<Box<Sendable>>)> {
        {
            let mut progress = self.progress();
            progress.line = Some((open.meter.clone(), open.meter.sent(), open.meter.received()));
            progress.phase = Phase::BeforeFirstByte;
        }
        match open.sender.try_send_request(request).await {
            Ok(response) => Ok((response, open)),
            Err(mut error) => {
                let what = if error.error().is_parse() { What::Garbage } else { What::Closed };
                let failed = self.lost(what);
                let given_back = error.take_message().filter(|_| !failed.sent).map(Box::new);
                Err((failed, given_back))
            }
        }
    }

    fn request(&self, load: Load<'_>) -> Result<Sendable, EgressNo> {
        let Load { method, mut headers, body, credential } = load;
        let mut path = self.target.path_and_query();
        match credential.map(Credential::added).transpose()? {
            Some(Added::Header(name, value)) => {
                headers.insert(name, value);
            }
            Some(Added::Pair(name, value)) => path = self.target.with_pair(&name, &value).path_and_query(),
            None => {}
        }
        let unfit = |_| EgressNo::Url("the address cannot be sent");
        let uri = path.parse::<Uri>().map_err(unfit)?;
        let host = self.target.authority().parse().map_err(|_| EgressNo::Url("the address cannot be sent"))?;
        headers.insert(header::HOST, host);
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

type Sendable = http::Request<Full<Bytes>>;
type Received = http::Response<hyper::body::Incoming>;

impl Reply {
    /// Where it redirects to, if it does.
    pub(super) fn leads_to(&self, from: &Target) -> Option<Result<Target, &'static str>> {
        if !matches!(self.status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = self.headers.get(header::LOCATION)?;
        Some(location.to_str().map_err(|_| "not a proper address").and_then(|location| from.follow(location)))
    }

    /// What may be shown of it.
    pub(super) fn scrubbed(self, target: &Target, credential: Option<&Credential>) -> Answer {
        let scrub = |bytes: &[u8]| credential.and_then(|own| own.scrub(bytes));
        let headers = headers::incoming(&self.headers, scrub);
        let body = scrub(&self.body).map_or(self.body, Bytes::from);
        Answer { status: self.status, headers, body, url: target.as_str().to_owned() }
    }
}
