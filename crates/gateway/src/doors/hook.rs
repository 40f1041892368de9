//! The door for Telegram: news that are brought to us.
//!
//! Takes one update with the secret that only Telegram and this gateway know; acts on it as on one we asked for.
//! Promise: without the secret nothing is read; what could not be acted on is refused, so that it comes again; what
//! comes twice is acted on once.

use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::Incoming;
use sluice_core::ids::RequestId;
use sluice_core::refusal::Code;
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

use super::http::reply::{Body, Reply};
use super::http::{check_host, check_origin, read_bytes, text_header};
use crate::channels::telegram::Telegram;
use crate::{Gateway, No};

pub(crate) use crate::channels::telegram::hook::PATH;

/// The header Telegram sends the secret in.
const SECRET: &str = "x-telegram-bot-api-secret-token";

/// The door, where a webhook is configured.
#[derive(Debug)]
pub(crate) struct Hook {
    bot: Telegram,
    /// One at a time: the same news twice at once would both be new.
    turn: Mutex<()>,
}

impl Hook {
    /// The door of a gateway, if it has one.
    pub fn new(gw: &Gateway) -> Option<Self> {
        gw.config.telegram.webhook.as_ref()?;
        match Telegram::configured(&gw.config) {
            Ok(bot) => bot.map(|bot| Self { bot, turn: Mutex::new(()) }),
            Err(why) => {
                tracing::error!("news of Telegram cannot be taken: {why}");
                None
            }
        }
    }

    /// One piece of news.
    pub async fn visit(&self, gw: &Gateway, request: Request<Incoming>, id: RequestId) -> Result<Response<Body>, No> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(No::new(Code::DoorMethod));
        }
        self.check(gw, &head.headers)?;
        let bytes = read_bytes(gw, &head.headers, body).await?;
        let update = serde_json::from_slice(&bytes).map_err(|_| No::new(Code::JsonSyntax))?;
        let _turn = self.turn.lock().await;
        match self.bot.take(gw, update).await {
            Ok(()) => Ok(Reply::json(200, &serde_json::json!({})).into_response(id)),
            Err(fault) => {
                tracing::warn!("news of Telegram have to come again: {fault}");
                Err(No::new(Code::GatewayUnavailable))
            }
        }
    }

    fn check(&self, gw: &Gateway, headers: &HeaderMap) -> Result<(), No> {
        let ours = gw.config.telegram.webhook.as_ref().map(|at| at.authority());
        if !is_at(headers, ours) {
            check_host(gw, headers)?;
        }
        check_origin(gw, headers)?;
        let given = text_header(headers, SECRET)?.ok_or_else(|| No::new(Code::IdentityMissing))?;
        let known = self.bot.hook_secret().ok_or_else(|| No::new(Code::IdentityUnknown))?;
        // SECURITY: how long the comparison takes must not say how much of a guess was right.
        if bool::from(given.as_bytes().ct_eq(known.as_bytes())) {
            return Ok(());
        }
        tracing::warn!("news that claim to be of Telegram came without its secret");
        Err(No::new(Code::IdentityUnknown))
    }
}

/// Whether a request names exactly this host.
pub(crate) fn is_at(headers: &HeaderMap, host: Option<&str>) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(one), None, Some(host)) = (named.next(), named.next(), host) else { return false };
    one.to_str().is_ok_and(|one| one.eq_ignore_ascii_case(host))
}
