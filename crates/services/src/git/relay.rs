//! The relay from git to its remote: one port in git's own network namespace; egress sends the requests.
//!
//! Takes the plain HTTP requests of git's protocol; gives the answers of the one repository that the call names. Git
//! holds no credential and knows no host. Promise: only the four requests of the protocol, only to this address,
//! through a connection that the operator opened for git; egress adds the credential, which is never seen here.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sluice_config::network::EgressConnection;
use sluice_core::Actor;
use sluice_core::refusal::{Code, Refusal};
use sluice_egress::{self, Egress};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::programs::{ProgramOutcome, ProgramTask, ProgramTaskError, run};
use crate::workers::{GatewayWorkers, NetworkIsolation, ThirdPartyNetwork};

/// The port inside the network namespace. Nothing else listens there.
const PORT: u16 = 3128;
/// The largest request of git, in bytes.
const LARGEST: usize = 32 << 20;
/// The headers of git that are passed on.
const ALONG: [&str; 4] = ["accept", "content-type", "content-encoding", "git-protocol"];

/// The relay to one remote repository.
pub(super) struct GitHttpRelay {
    egress: Arc<Egress>,
    connection: Arc<EgressConnection>,
    /// The address of the repository, without a slash at its end.
    url: String,
    capability: String,
    by: Actor,
    /// The reason why the last request was refused here, if it was.
    refused: Mutex<Option<Refusal>>,
}

impl GitHttpRelay {
    pub(super) fn new(
        egress: &Arc<Egress>,
        connection: Arc<EgressConnection>,
        url: &str,
        capability: &str,
        by: Actor,
    ) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let capability = capability.to_owned();
        Self { egress: Arc::clone(egress), connection, url, capability, by, refused: Mutex::default() }
    }

    /// The reason why egress refused a request, if it did.
    pub(super) fn why(&self) -> Option<Refusal> {
        self.refused.lock().take()
    }

    /// Runs git with its one port open. `{remote}` in its arguments is replaced by the address of the relay.
    pub(super) async fn run(
        self: Arc<Self>,
        workers: &Arc<GatewayWorkers>,
        mut task: ProgramTask,
    ) -> Result<Result<ProgramOutcome, ProgramTaskError>, Refusal> {
        let failed = |error: std::io::Error| Refusal::new(Code::GitFailed).with_source(error);
        let isolation = workers.network_isolation();
        let isolation = isolation.map_err(|why| Refusal::new(Code::GitRemoteNotAllowed).with_source(why))?;
        let (hand, handed) = oneshot::channel::<OwnedFd>();
        let (mut own, mut port) = (None, PORT);
        match isolation {
            NetworkIsolation::Namespace => {
                task.terms.network = ThirdPartyNetwork::OwnNamespace { port };
                task.listener = Some(Box::new(move |socket| drop(hand.send(socket))));
            }
            NetworkIsolation::FiltersOnly => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
                port = listener.local_addr().map_err(failed)?.port();
                (task.terms.network, own) = (ThirdPartyNetwork::MachinePort { port }, Some(listener));
            }
        }
        let remote = format!("http://127.0.0.1:{port}/r");
        for argument in &mut task.terms.arguments {
            *argument = argument.replace("{remote}", &remote);
        }
        let serving = async {
            let listener = match own {
                Some(listener) => Some(listener),
                None => handed.await.ok().and_then(|socket| {
                    let listener = std::net::TcpListener::from(socket);
                    listener.set_nonblocking(true).ok()?;
                    TcpListener::from_std(listener).ok()
                }),
            };
            if let Some(listener) = listener {
                serve(listener, Arc::clone(&self)).await;
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            outcome = run(workers, task) => Ok(outcome),
            never = serving => match never {},
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path_and_query().map_or("", http::uri::PathAndQuery::as_str).to_owned();
        let (method, wanted) = (request.method().clone(), path.strip_prefix("/r").unwrap_or_default());
        let is_ours = match wanted {
            "/info/refs?service=git-upload-pack" | "/info/refs?service=git-receive-pack" => method == Method::GET,
            "/git-upload-pack" | "/git-receive-pack" => method == Method::POST,
            _ => false,
        };
        // SECURITY: a call that only fetches gets no way to publish.
        if !is_ours || (wanted.ends_with("git-receive-pack") && self.capability != "git.push") {
            return plain(403, Bytes::new());
        }
        let headers = request.headers().iter().filter(|(name, _)| ALONG.contains(&name.as_str()));
        let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let headers: Vec<(String, String)> = headers.filter_map(text).collect();
        let url = format!("{}{wanted}", self.url);
        let Ok(body) = Limited::new(request.into_body(), LARGEST).collect().await else {
            return plain(413, Bytes::new());
        };
        let request =
            sluice_egress::EgressRequest { method, url, headers, body: body.to_bytes(), follow: false, timeout: None };
        match self.egress.request(&self.connection, &self.capability, self.by.clone(), request).await {
            Ok(answer) => {
                let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
                let mut response = plain(answer.status, answer.body);
                if let Some(value) = kind.and_then(|(_, value)| http::HeaderValue::from_str(value).ok()) {
                    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
                }
                // An authentication challenge would make git look for a credential, and it has none.
                response
            }
            Err(no) => {
                *self.refused.lock() = Some(no.refusal());
                plain(502, Bytes::new())
            }
        }
    }
}

fn plain(status: u16, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::BAD_GATEWAY);
    response
}

/// Answers requests until it is dropped.
async fn serve(listener: TcpListener, relay: Arc<GitHttpRelay>) {
    let mut lines = JoinSet::new();
    while let Ok((line, _)) = listener.accept().await {
        while lines.try_join_next().is_some() {}
        let relay = Arc::clone(&relay);
        lines.spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let relay = Arc::clone(&relay);
                async move { Ok::<_, Infallible>(relay.answer(request).await) }
            });
            // A connection that breaks ends with its program.
            let _over = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(line), answer).await;
        });
    }
}
