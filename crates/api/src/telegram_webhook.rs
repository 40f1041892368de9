//! The webhook door: updates that Telegram sends to us.
//!
//! Takes one update with the secret that only Telegram and this gateway know; acts on it as on one from polling.
//! Promise: without the secret nothing is read; an update that could not be acted on is refused, so that it is sent
//! again; an update that arrives twice is acted on once.

use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::Incoming;
use sluice_core::ids::RequestId;
use sluice_core::refusal::Code;
use sluice_gateway::Gateway;
use sluice_gateway::channels::telegram::TelegramChannel;
use sluice_services::CallError;
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

use super::http::reply::{HttpReply, HttpReplyBody};
use super::http::{check_host, check_origin, read_bytes, text_header};

pub(crate) use sluice_gateway::channels::telegram::webhook::PATH;

/// The header in which Telegram sends the secret.
const SECRET: &str = "x-telegram-bot-api-secret-token";

/// The door, if a webhook is configured.
#[derive(Debug)]
pub(crate) struct TelegramWebhookDoor {
    bot: TelegramChannel,
    /// One update at a time: two copies of one update at once would both count as new.
    turn: Mutex<()>,
}

impl TelegramWebhookDoor {
    /// The door of a gateway, if it has a webhook.
    pub fn new(gw: &Gateway) -> Option<Self> {
        gw.config.telegram.webhook.as_ref()?;
        match TelegramChannel::configured(&gw.config) {
            Ok(bot) => bot.map(|bot| Self { bot, turn: Mutex::new(()) }),
            Err(why) => {
                tracing::error!("updates of Telegram cannot be received: {why}");
                None
            }
        }
    }

    /// Handles one update.
    pub async fn visit(
        &self,
        gw: &Gateway,
        request: Request<Incoming>,
        id: RequestId,
    ) -> Result<Response<HttpReplyBody>, CallError> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(CallError::new(Code::DoorMethod));
        }
        self.check(gw, &head.headers)?;
        let bytes = read_bytes(gw, &head.headers, body).await?;
        let update = serde_json::from_slice(&bytes).map_err(|_| CallError::new(Code::JsonSyntax))?;
        let _turn = self.turn.lock().await;
        match self.bot.handle_update(gw, update).await {
            Ok(()) => Ok(HttpReply::json(200, &serde_json::json!({})).into_response(id)),
            Err(fault) => {
                tracing::warn!("updates of Telegram must be sent again: {fault}");
                Err(CallError::new(Code::GatewayUnavailable))
            }
        }
    }

    fn check(&self, gw: &Gateway, headers: &HeaderMap) -> Result<(), CallError> {
        let ours = gw.config.telegram.webhook.as_ref().map(|at| at.authority());
        if !is_at(headers, ours) {
            check_host(gw, headers)?;
        }
        check_origin(gw, headers)?;
        let given = text_header(headers, SECRET)?.ok_or_else(|| CallError::new(Code::IdentityMissing))?;
        let known = self.bot.hook_secret().ok_or_else(|| CallError::new(Code::IdentityUnknown))?;
        // SECURITY: the time of the comparison must not show how much of a guess was right.
        if bool::from(given.as_bytes().ct_eq(known.as_bytes())) {
            return Ok(());
        }
        tracing::warn!("an update that claims to be from Telegram came without its secret");
        Err(CallError::new(Code::IdentityUnknown))
    }
}

/// Whether a request names exactly this host.
pub(crate) fn is_at(headers: &HeaderMap, host: Option<&str>) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(one), None, Some(host)) = (named.next(), named.next(), host) else { return false };
    one.to_str().is_ok_and(|one| one.eq_ignore_ascii_case(host))
}
