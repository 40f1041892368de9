//! The webhook: Telegram sends updates to us, instead of us polling for them.
//!
//! Takes the address at which Telegram reaches us; registers it, keeps checking that it stays registered, and removes
//! it at the end. Promise: a webhook that another program has set or removed raises an alert and is corrected; the
//! secret that proves that an update comes from Telegram is derived from the bot's token, so that every node knows it
//! and nobody else does.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::{Millis, UtcMillis};
use zeroize::Zeroizing;

use super::{KINDS, TelegramChannel};
use crate::Gateway;
use crate::channels::ChannelError;

/// The path that receives updates, below the gateway's public address.
pub const PATH: &str = "/hooks/telegram";
/// The name under which the registered address is stored.
const MARK: &str = "telegram.webhook";
/// How often the registration is checked.
pub(super) const EVERY: Millis = Millis::from_mins(1);

/// Where and how updates are received.
#[derive(Debug, Clone)]
pub(super) struct TelegramWebhook {
    url: String,
    secret: Zeroizing<String>,
}

impl TelegramWebhook {
    /// Makes the webhook of a bot at a public address.
    pub(super) fn new(base: &str, token: &str) -> Self {
        let digest = Sha256::new().chain_update(b"sluice telegram webhook\n").chain_update(token).finalize();
        let secret = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self { url: format!("{base}{PATH}"), secret: Zeroizing::new(secret) }
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

impl TelegramChannel {
    /// Checks once whether updates are sent to us, and registers the webhook if not.
    ///
    /// # Errors
    /// When the service cannot be reached, cannot reach us, or another program has changed the webhook.
    pub async fn watch(&self, gw: &Gateway) -> Result<(), ChannelError> {
        let Some(hook) = &self.hook else { return self.remove(gw).await };
        let kept = gw.store.channel_mark(MARK).await?.filter(|url| !url.is_empty());
        let info = self.call("getWebhookInfo", &json!({})).await?;
        let set = info.get("url").and_then(Value::as_str).unwrap_or_default();
        if set == hook.url && kept.as_deref() == Some(set) {
            return complaint(&info, gw.now());
        }
        // Set by us before, removed by another node that stopped, or not set yet; anything else was set by another
        // program.
        let foreign = set != hook.url && set != kept.as_deref().unwrap_or_default();
        let body = json!({
            "url": hook.url, "secret_token": hook.secret(), "allowed_updates": KINDS, "drop_pending_updates": false,
        });
        self.call("setWebhook", &body).await?;
        gw.store.set_channel_mark(MARK, hook.url.clone()).await?;
        if foreign {
            let why = "telegram: another program has set or removed the webhook of this bot, and may have its token";
            return Err(ChannelError::Broken { why: why.into() });
        }
        Ok(())
    }

    /// Removes a webhook of ours: from now on we poll, or have stopped.
    pub(super) async fn remove(&self, gw: &Gateway) -> Result<(), ChannelError> {
        if gw.store.channel_mark(MARK).await?.is_none_or(|url| url.is_empty()) {
            return Ok(());
        }
        self.call("deleteWebhook", &json!({"drop_pending_updates": false})).await?;
        gw.store.set_channel_mark(MARK, String::new()).await?;
        Ok(())
    }
}

/// What the service reports about sending us updates, if that failed recently.
fn complaint(info: &Value, now: UtcMillis) -> Result<(), ChannelError> {
    let at = info.get("last_error_date").and_then(Value::as_i64).unwrap_or_default();
    let lately = now.since(UtcMillis::from_millis(at.saturating_mul(1000))) < EVERY + EVERY;
    if at > 0 && lately && info.get("pending_update_count").and_then(Value::as_u64).is_some_and(|count| count > 0) {
        return Err(ChannelError::Later {
            after: Some(EVERY),
            why: "telegram: updates cannot be delivered to the webhook".into(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_one_telegram_takes_and_says_nothing_of_the_token() {
        let hook = TelegramWebhook::new("https://gate.example", "123:abc");
        assert_eq!(hook.url, "https://gate.example/hooks/telegram");
        assert!(hook.secret().len() == 64 && hook.secret().bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(hook.secret(), TelegramWebhook::new("https://gate.example", "123:abd").secret());
        assert!(!format!("{hook:?}").contains("abc"));
    }

    #[test]
    fn only_news_that_wait_and_failed_lately_are_a_complaint() {
        let now = UtcMillis::from_millis(1_000_000_000);
        let info = |at: i64, waiting: u64| json!({"last_error_date": at, "pending_update_count": waiting});
        assert!(complaint(&info(999_990, 3), now).is_err());
        for fine in [info(999_990, 0), info(999_000, 3), json!({})] {
            assert_eq!(complaint(&fine, now), Ok(()), "{fine}");
        }
    }
}
