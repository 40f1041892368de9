//! One trip: a request over the wire, and its reply.
//!
//! Takes a request that may leave; gives the reply, or the phase in which it failed. Promise: whether any byte of the
//! request left is counted, not guessed; a request is sent on a second line only if nothing of it left on the first.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use http_body_util::Full;
use parking_lot::{Mutex, MutexGuard};
use sluice_config::network::{EgressConnection, EgressUrl};
use sluice_core::Millis;
use tokio::time::timeout;

use super::credential::{InjectedCredential, OutgoingCredential};
use super::error::{EgressError, ExchangeFailure, ExchangeFault, ExchangePhase};
use super::pool::{PooledSender, SenderPoolKey};
use super::response::{self, ResponseLimits};
use super::transport::ByteMeter;
use super::{Egress, EgressResponse, headers};

/// How long a kept line may take to report that it is free.
const READY: Millis = Millis::from_millis(100);

/// A trip and its progress.
pub(super) struct HttpExchange<'a> {
    connection: &'a EgressConnection,
    target: &'a EgressUrl,
    is_read: bool,
    progress: Mutex<ExchangeProgress>,
}

/// The request to send.
pub(super) struct ExchangeRequest<'a> {
    pub method: &'a Method,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub credential: Option<&'a OutgoingCredential>,
}

/// The progress of a trip.
struct ExchangeProgress {
    phase: ExchangePhase,
    /// The line's meter, and its values before the request.
    line: Option<(ByteMeter, u64, u64)>,
}

/// A reply as it arrived.
pub(super) struct ExchangeResponse {
    pub status: u16,
    pub headers: HeaderMap,
    body: Bytes,
}

impl<'a> HttpExchange<'a> {
    pub(super) fn new(connection: &'a EgressConnection, target: &'a EgressUrl, is_read: bool) -> Self {
        let progress = Mutex::new(ExchangeProgress { phase: ExchangePhase::Dns, line: None });
        Self { connection, target, is_read, progress }
    }

    fn progress(&self) -> MutexGuard<'_, ExchangeProgress> {
        self.progress.lock()
    }

    /// The error when the time is up, in the current phase.
    pub(super) fn too_slow(&self) -> ExchangeFailure {
        self.lost(ExchangeFault::TooSlow)
    }

    /// The error when the connection fails, in the current phase.
    fn lost(&self, what: ExchangeFault) -> ExchangeFailure {
        let progress = self.progress();
        let Some((meter, sent, received)) = &progress.line else {
            return ExchangeFailure { phase: progress.phase, what, sent: false };
        };
        let (left, came) = (meter.sent() > *sent, meter.received() > *received);
        let phase = match progress.phase {
            ExchangePhase::Reply => ExchangePhase::Reply,
            _ if came => ExchangePhase::After,
            _ if left => ExchangePhase::BeforeFirstByte,
            _ => ExchangePhase::Connect,
        };
        ExchangeFailure { phase, what, sent: left }
    }

    /// Sends the request and reads the reply.
    pub(super) async fn walk(
        &self,
        egress: &Egress,
        load: ExchangeRequest<'_>,
    ) -> Result<ExchangeResponse, EgressError> {
        let request = self.request(load)?;
        let place = SenderPoolKey {
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
            // The line was closed while it was kept, and nothing was sent on it: the request can be sent again.
            Err((_, Some(request))) if was_kept => {
                let open = self.fresh(egress).await?;
                self.ask(open, *request).await.map_err(|(failed, _)| failed)?
            }
            Err((failed, _)) => return Err(failed.into()),
        };
        self.progress().phase = ExchangePhase::Reply;
        let (head, body) = response.into_parts();
        let encodings: Vec<&str> =
            head.headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?")).collect();
        let encoding = (!encodings.is_empty()).then(|| encodings.join(",").to_ascii_lowercase());
        let bounds = ResponseLimits { most: self.connection.max_answer, idle: self.connection.idle_timeout };
        let body = response::read(body, encoding.as_deref(), bounds).await?;
        egress.pool.keep(place, open, egress.clock.since_boot());
        Ok(ExchangeResponse { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// A kept line that is free.
    async fn kept(&self, egress: &Egress, place: &SenderPoolKey) -> Option<PooledSender> {
        while let Some(mut open) = egress.pool.take(place, self.is_read, egress.clock.since_boot()) {
            if let Ok(Ok(())) = timeout(READY.as_duration(), open.sender.ready()).await {
                return Some(open);
            }
        }
        None
    }

    async fn fresh(&self, egress: &Egress) -> Result<PooledSender, EgressError> {
        {
            let mut progress = self.progress();
            progress.line = None;
            progress.phase = ExchangePhase::Dns;
        }
        let reached = |phase| self.progress().phase = phase;
        let (line, meter) = egress.wire.connect(self.target, &self.connection.allow_addresses, reached).await?;
        egress.pool.start(line, meter).await
    }

    /// Sends the request. A request of which nothing left is returned.
    async fn ask(
        &self,
        mut open: PooledSender,
        request: HyperRequest,
    ) -> Result<(HyperResponse, PooledSender), (ExchangeFailure, Option<Box<HyperRequest>>)> {
        {
            let mut progress = self.progress();
            progress.line = Some((open.meter.clone(), open.meter.sent(), open.meter.received()));
            progress.phase = ExchangePhase::BeforeFirstByte;
        }
        match open.sender.try_send_request(request).await {
            Ok(response) => Ok((response, open)),
            Err(mut error) => {
                let what = if error.error().is_parse() { ExchangeFault::Garbage } else { ExchangeFault::Closed };
                let failed = self.lost(what);
                let given_back = error.take_message().filter(|_| !failed.sent).map(Box::new);
                Err((failed, given_back))
            }
        }
    }

    fn request(&self, load: ExchangeRequest<'_>) -> Result<HyperRequest, EgressError> {
        let ExchangeRequest { method, mut headers, body, credential } = load;
        let mut path = self.target.path_and_query();
        match credential.map(OutgoingCredential::added).transpose()? {
            Some(InjectedCredential::Header(name, value)) => {
                headers.insert(name, value);
            }
            Some(InjectedCredential::Pair(name, value)) => path = self.target.with_pair(&name, &value).path_and_query(),
            None => {}
        }
        let unfit = |_| EgressError::Url("the address cannot be sent");
        let uri = path.parse::<Uri>().map_err(unfit)?;
        let host = self.target.authority().parse().map_err(|_| EgressError::Url("the address cannot be sent"))?;
        headers.insert(header::HOST, host);
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

type HyperRequest = http::Request<Full<Bytes>>;
type HyperResponse = http::Response<hyper::body::Incoming>;

impl ExchangeResponse {
    /// The target of the redirect, if it is one.
    pub(super) fn leads_to(&self, from: &EgressUrl) -> Option<Result<EgressUrl, &'static str>> {
        if !matches!(self.status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = self.headers.get(header::LOCATION)?;
        Some(location.to_str().map_err(|_| "not a valid URL").and_then(|location| from.follow(location)))
    }

    /// The part of the reply that may be shown.
    pub(super) fn scrubbed(self, target: &EgressUrl, credential: Option<&OutgoingCredential>) -> EgressResponse {
        let scrub = |bytes: &[u8]| credential.and_then(|own| own.scrub(bytes));
        let headers = headers::incoming(&self.headers, scrub);
        let body = scrub(&self.body).map_or(self.body, Bytes::from);
        EgressResponse { status: self.status, headers, body, url: target.as_str().to_owned() }
    }
}
