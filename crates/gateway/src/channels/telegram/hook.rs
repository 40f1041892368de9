//! The webhook: news that Telegram brings to us, instead of us asking for them.
//!
//! Takes the address Telegram reaches us at; says so there, keeps watching that it stays so, and takes it back at the
//! end. Promise: a webhook that somebody else has set or removed raises an alert and is set right; the secret that
//! proves news to be Telegram's is made from the bot's token, so that every node knows it and nobody else.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::{Span, Timestamp};
use zeroize::Zeroizing;

use super::{KINDS, Telegram};
use crate::Gateway;
use crate::channels::Fault;

/// Where news are brought, below the gateway's public address.
pub const PATH: &str = "/hooks/telegram";
/// Under which name it is kept which address we have set.
const MARK: &str = "telegram.webhook";
/// How often it is looked at.
pub(super) const EVERY: Span = Span::from_mins(1);

/// Where and how news are brought.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    url: String,
    secret: Zeroizing<String>,
}

impl Hook {
    /// For a bot, at a public address.
    pub(super) fn new(base: &str, token: &str) -> Self {
        let digest = Sha256::new().chain_update(b"sluice telegram webhook\n").chain_update(token).finalize();
        let secret = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self { url: format!("{base}{PATH}"), secret: Zeroizing::new(secret) }
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

impl Telegram {
    /// Looks once whether news are brought to us, and sees to it that they are.
    ///
    /// # Errors
    /// When the service is not reached, cannot reach us, or somebody else has touched the webhook.
    pub async fn watch(&self, gw: &Gateway) -> Result<(), Fault> {
        let Some(hook) = &self.hook else { return self.forsake(gw).await };
        let kept = gw.store.channel_mark(MARK).await?.filter(|url| !url.is_empty());
        let info = self.call("getWebhookInfo", &json!({})).await?;
        let set = info.get("url").and_then(Value::as_str).unwrap_or_default();
        if set == hook.url && kept.as_deref() == Some(set) {
            return complaint(&info, gw.now());
        }
        // Ours from before, another node's end, or nobody's yet; and otherwise somebody else's.
        let foreign = set != hook.url && set != kept.as_deref().unwrap_or_default();
        let body = json!({
            "url": hook.url, "secret_token": hook.secret(), "allowed_updates": KINDS, "drop_pending_updates": false,
        });
        self.call("setWebhook", &body).await?;
        gw.store.set_channel_mark(MARK, hook.url.clone()).await?;
        if foreign {
            let why = "telegram: somebody else has set or removed the webhook of this bot, and may have its token";
            return Err(Fault::Broken { why: why.into() });
        }
        Ok(())
    }

    /// Takes back a webhook of ours: from now on we ask for news, or are gone.
    pub(super) async fn forsake(&self, gw: &Gateway) -> Result<(), Fault> {
        if gw.store.channel_mark(MARK).await?.is_none_or(|url| url.is_empty()) {
            return Ok(());
        }
        self.call("deleteWebhook", &json!({"drop_pending_updates": false})).await?;
        gw.store.set_channel_mark(MARK, String::new()).await?;
        Ok(())
    }
}

/// What the service says about bringing us news, if that failed lately.
fn complaint(info: &Value, now: Timestamp) -> Result<(), Fault> {
    let at = info.get("last_error_date").and_then(Value::as_i64).unwrap_or_default();
    let lately = now.since(Timestamp::from_millis(at.saturating_mul(1000))) < EVERY + EVERY;
    if at > 0 && lately && info.get("pending_update_count").and_then(Value::as_u64).is_some_and(|count| count > 0) {
        return Err(Fault::Later { after: Some(EVERY), why: "telegram: news cannot be brought to the webhook".into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_one_telegram_takes_and_says_nothing_of_the_token() {
        let hook = Hook::new("https://gate.example", "123:abc");
        assert_eq!(hook.url, "https://gate.example/hooks/telegram");
        assert!(hook.secret().len() == 64 && hook.secret().bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(hook.secret(), Hook::new("https://gate.example", "123:abd").secret());
        assert!(!format!("{hook:?}").contains("abc"));
    }

    #[test]
    fn only_news_that_wait_and_failed_lately_are_a_complaint() {
        let now = Timestamp::from_millis(1_000_000_000);
        let info = |at: i64, waiting: u64| json!({"last_error_date": at, "pending_update_count": waiting});
        assert!(complaint(&info(999_990, 3), now).is_err());
        for fine in [info(999_990, 0), info(999_000, 3), json!({})] {
            assert_eq!(complaint(&fine, now), Ok(()), "{fine}");
        }
    }
}
