//! The mailbox that replies arrive in: each mail is fetched, checked and acted on, one by one.
//!
//! Takes the mails above the last one that was acted on; gives decisions. Promise: a mail decides only if it has all of
//! this: one sender, who is the person asked; a signature of the sender's domain over sender, recipients, subject and
//! body; the token of the message it answers; one exact answer. A mail that lacks any of it is recorded and decides
//! nothing. The read position is stored after each mail was acted on, so that no mail is lost and none decides twice.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_config::{Email as Settings, Security};
use sluice_core::approval::mail::ReplyRemainder;
use sluice_core::approval::reply::ApprovalReply;
use sluice_core::approval::reply_meaning::{self, ReplyInterpretation, ReplyMeaning};
use sluice_core::ids::{ConnectionName, MessageId, SecretName};
use sluice_core::{Actor, BoxedFuture, Millis, PersonName, hex};
use sluice_egress::transport::trust;
use sluice_egress::vault::SecretUse;
use sluice_store::{ApprovalDelivery, MessageSeverity, OutboxMessage};
use zeroize::Zeroizing;

use super::NAME;
use crate::Gateway;
use crate::channels::ChannelError;
use crate::channels::approval_message::hash;
use crate::channels::imap::{ImapEndpoint, ImapFolder, NewImapMail};
use crate::channels::mail_auth::{self, DnsTxtResolver, ReplyMailFacts, ReplyMailReadError, TxtResolver};
use crate::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource};
use crate::gate::replies::{self, ReplyOutcome};
use crate::gate::standing;

/// The capability that the mailbox password must be allowed for.
pub const CAPABILITY: &str = "approvals.replies";
/// How far back to read a new or renumbered mailbox: longer than an approval can stay open.
const LOOK_BACK: Millis = Millis::from_hours(8 * 24);
/// How often a mail is tried when the keys of its signature cannot be looked up.
const TRIES: u32 = 3;
/// Wrong tokens from one address in an hour after which the address is ignored for the rest of it and the next hour.
const WRONG_TOKENS: u32 = 10;
const HOUR: Millis = Millis::from_hours(1);

/// The mailbox that replies arrive in.
pub(super) struct ReplyMailbox {
    place: ImapEndpoint,
    user: String,
    secret: SecretName,
    done_folder: Option<String>,
    poll: Millis,
    largest: u64,
    forwarders: Vec<String>,
    records: Arc<dyn TxtResolver>,
    /// The reply address: the part before and the part after the `@`.
    address: (String, String),
    /// The name under which the database stores the read position.
    mark: String,
    open: tokio::sync::Mutex<Option<ImapFolder>>,
    /// The mail that could not be judged yet, and how often it was tried.
    tries: Mutex<(u32, u32)>,
}

impl fmt::Debug for ReplyMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why a mail was not accepted.
enum MailReplyError {
    Because(&'static str),
    Fault(ChannelError),
}

impl<E: Into<ChannelError>> From<E> for MailReplyError {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// An answer of a person who proved who they are.
struct AuthenticatedReply {
    delivery: ApprovalDelivery,
    by: Actor,
    words: String,
    rest: ReplyRemainder,
    exact: bool,
}

/// The part of e-mail sending that this file needs.
pub(super) trait ReplyNotifier: Send + Sync {
    /// Sends a text to a person, in the conversation of a message if one is named.
    fn tell<'a>(&'a self, place: &'a str, message: Option<&'a str>, text: &'a str) -> BoxedFuture<'a, ()>;
}

impl ReplyMailbox {
    /// Makes the mailbox from the configuration; `None` if no host is configured.
    pub(super) fn new(settings: &Settings, records: Option<Arc<dyn TxtResolver>>) -> Result<Option<Self>, String> {
        let Some(host) = &settings.imap_host else { return Ok(None) };
        let host = host.as_str().to_owned();
        let plain_here = ["127.0.0.1", "localhost", "::1"].contains(&host.as_str());
        if settings.imap_security == Security::Off && !plain_here {
            return Err("mail without TLS is fetched from this machine only".into());
        }
        let replies = settings.reply_to.as_ref().or(settings.from.as_ref());
        let address = replies.ok_or("there is no address for replies: set `email.reply_to`")?.as_str();
        let user = settings.imap_user.as_ref().map_or(address, |user| user.as_str()).to_owned();
        let secret =
            settings.imap_secret.clone().ok_or("there is no password for the mailbox: set `email.imap_secret`")?;
        let (local, domain) = address.split_once('@').ok_or("the address for replies is not an e-mail address")?;
        let mut tls = rustls::ClientConfig::clone(trust(settings.ca_file.as_deref())?.as_ref());
        tls.alpn_protocols.clear();
        let folder = settings.imap_folder.as_str().to_owned();
        let mark = Sha256::digest(format!("{user}\0{host}\0{}\0{folder}", settings.imap_port));
        let records = match records {
            Some(records) => records,
            None => Arc::new(DnsTxtResolver::new(&settings.dns)?),
        };
        Ok(Some(Self {
            mark: format!("{NAME}:{}", hex::encode(mark.get(..8).unwrap_or_default())),
            address: (local.to_owned(), domain.to_owned()),
            place: ImapEndpoint {
                port: u16::try_from(settings.imap_port).map_err(|_| "the port is not valid")?,
                security: settings.imap_security,
                tls: Arc::new(tls),
                host,
                folder,
            },
            user,
            secret,
            done_folder: settings.imap_done_folder.as_ref().map(|folder| folder.as_str().to_owned()),
            poll: settings.imap_poll,
            largest: settings.imap_max_message.as_bytes(),
            forwarders: settings.forwarders.iter().map(|domain| domain.as_str().to_owned()).collect(),
            records,
            open: tokio::sync::Mutex::new(None),
            tries: Mutex::default(),
        }))
    }

    /// The reply address of a message with this secret.
    pub(super) fn address_for(&self, secret: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
        let (local, domain) = &self.address;
        Some(format!("{local}+{}@{domain}", hex::encode(&bytes)))
    }

    /// The secret of the one token in these addresses; `None` if there is no token, or more than one.
    fn secret_in(&self, to: &[String]) -> Option<String> {
        let (local, domain) = &self.address;
        let token = |address: &String| -> Option<[u8; 16]> {
            let address = address.to_ascii_lowercase();
            let (before, after) = address.rsplit_once('@')?;
            let token = before.strip_prefix(local.as_str())?.strip_prefix('+')?;
            hex::decode(token).filter(|_| after == domain)
        };
        let mut found: Vec<[u8; 16]> = to.iter().filter_map(token).collect();
        found.dedup();
        match found.as_slice() {
            [one] => Some(URL_SAFE_NO_PAD.encode(one)),
            _ => None,
        }
    }

    /// Acts on all new mail, then waits a while for more.
    pub(super) async fn hear(&self, gw: &Gateway, post: &dyn ReplyNotifier) -> Result<(), ChannelError> {
        let mut held = self.open.lock().await;
        let folder = self.caught_up(gw, post, held.take()).await?;
        gw.hearing.mark_healthy(NAME, gw.now());
        *held = Some(folder.wait(self.poll.as_duration()).await?);
        Ok(())
    }

    /// Acts on all new mail.
    pub(super) async fn process_new_mail(&self, gw: &Gateway, post: &dyn ReplyNotifier) -> Result<(), ChannelError> {
        let mut held = self.open.lock().await;
        *held = Some(self.caught_up(gw, post, held.take()).await?);
        Ok(())
    }

    async fn caught_up(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        open: Option<ImapFolder>,
    ) -> Result<ImapFolder, ChannelError> {
        let mut folder = match open {
            Some(mut folder) => {
                folder.refresh().await?;
                folder
            }
            None => self.connect(gw).await?,
        };
        let mut last = self.last_processed_uid(gw, &mut folder).await?;
        loop {
            let new = folder.mails_above(last).await?;
            if new.is_empty() {
                return Ok(folder);
            }
            for one in new {
                self.take_up(gw, post, &mut folder, one).await?;
                last = one.uid;
                gw.store.set_channel_mark(&self.mark, format!("{} {last}", folder.validity)).await?;
                if let Err(fault) = folder.put_aside(one.uid, self.done_folder.as_deref()).await {
                    tracing::warn!("a mail that was acted on could not be put aside: {fault}");
                }
            }
        }
    }

    async fn connect(&self, gw: &Gateway) -> Result<ImapFolder, ChannelError> {
        let broken = |why: String| ChannelError::Broken { why };
        let connection = ConnectionName::new(NAME).map_err(|error| broken(error.to_string()))?;
        let hosts = [self.place.host.clone()];
        let by = Actor::Node(gw.store.node().clone());
        let wanted = SecretUse { capability: CAPABILITY, connection: &connection, hosts: &hosts, by };
        let secret = gw.vault.take(&self.secret, &wanted).await;
        let secret = secret.map_err(|error| broken(format!("mail: no password for the mailbox: {error}")))?;
        let password = std::str::from_utf8(secret.expose())
            .map_err(|_| broken("mail: the password for the mailbox is not UTF-8 text".into()))?;
        let password = Zeroizing::new(password.trim_end_matches(['\r', '\n']).to_owned());
        ImapFolder::open(&self.place, &self.user, &password).await
    }

    /// The number of the last mail that was acted on.
    async fn last_processed_uid(&self, gw: &Gateway, folder: &mut ImapFolder) -> Result<u32, ChannelError> {
        let mark = gw.store.channel_mark(&self.mark).await?;
        let known = mark.as_deref().and_then(|mark| {
            let (validity, last) = mark.split_once(' ')?;
            Some((validity.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
        });
        if let Some((_, last)) = known.filter(|(validity, _)| *validity == folder.validity) {
            return Ok(last);
        }
        // The mailbox was never read, or was renumbered: mail numbers mean nothing, so the search goes by date. A mail
        // that was acted on before is recognised by its bytes, and an approval is answered once.
        let last = folder.uid_before_day(&day(gw.now() - LOOK_BACK)).await?;
        gw.store.set_channel_mark(&self.mark, format!("{} {last}", folder.validity)).await?;
        Ok(last)
    }

    /// Handles one mail. It is recorded as handled whatever its result; only a mail that could not be judged now is
    /// tried again.
    async fn take_up(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        folder: &mut ImapFolder,
        new: NewImapMail,
    ) -> Result<(), ChannelError> {
        if new.size > self.largest {
            let news = format!("large:{}:{}", folder.validity, new.uid);
            return Ok(gw.store.record_channel_news(NAME, &news, Some("email.too_large")).await?);
        }
        let Some(bytes) = folder.fetch(new).await? else { return Ok(()) };
        let news = format!("mail:{}", hex::encode(&Sha256::digest(&bytes)));
        if gw.store.has_channel_news(NAME, &news).await? {
            return Ok(());
        }
        let refused = match self.authenticate_mail(gw, post, (&bytes, new.uid)).await {
            Ok(answer) => {
                self.apply_answer(gw, post, answer).await?;
                None
            }
            Err(MailReplyError::Because(why)) => Some(why),
            Err(MailReplyError::Fault(fault)) => return Err(fault),
        };
        gw.store.record_channel_news(NAME, &news, refused).await?;
        Ok(())
    }

    /// Checks whether a mail is an answer of a person we asked. The cheapest checks come first; nothing is looked up
    /// for unknown senders.
    async fn authenticate_mail(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        (bytes, uid): (&[u8], u32),
    ) -> Result<AuthenticatedReply, MailReplyError> {
        let read = match mail_auth::read(&gw.workers, bytes, &self.forwarders).await {
            Ok(read) => read,
            Err(ReplyMailReadError::Never(why)) => return Err(MailReplyError::Because(why)),
            Err(ReplyMailReadError::Later(fault) | ReplyMailReadError::NoKeys(fault)) => return Err(fault.into()),
        };
        if read.automatic {
            return Err(MailReplyError::Because("email.automatic"));
        }
        let from = sender(&read)?;
        if read.to_headers != 1 || read.subject_headers > 1 {
            return Err(MailReplyError::Because("email.headers"));
        }
        if !gw.config.approvals.allows(NAME, &from) {
            return Err(MailReplyError::Because("email.sender"));
        }
        if self.is_locked(gw, &from).await? {
            return Err(MailReplyError::Because("email.locked"));
        }
        match mail_auth::judge(&gw.workers, self.records.as_ref(), (bytes, &read), (&self.forwarders, gw.now())).await {
            Ok(None) => {}
            Ok(Some(why)) | Err(ReplyMailReadError::Never(why)) => return Err(MailReplyError::Because(why)),
            // A name that never resolves must not delay everyone else's answers.
            Err(ReplyMailReadError::NoKeys(_)) if self.count_attempt(uid) >= TRIES => {
                return Err(MailReplyError::Because("email.no_keys"));
            }
            Err(ReplyMailReadError::Later(fault) | ReplyMailReadError::NoKeys(fault)) => return Err(fault.into()),
        }
        let Some(secret) = self.secret_in(&read.to) else {
            self.tell_nothing_decided(gw, post, &from).await?;
            return Err(MailReplyError::Because("email.no_token"));
        };
        // SECURITY: the token identifies the message; the sender must be the person it was sent to.
        let delivery = gw.store.delivery_by_secret(hash(&secret)).await?.filter(|known| known.channel == NAME);
        let Some(delivery) = delivery.filter(|known| known.place.eq_ignore_ascii_case(&from)) else {
            self.record_wrong_token(gw, &from).await?;
            return Err(MailReplyError::Because("email.token"));
        };
        if read.ids.iter().any(|id| *id != delivery.approval.to_string()) {
            return Err(MailReplyError::Because("email.other_id"));
        }
        let name = match gw.config.approvals.person_at(NAME, &delivery.place) {
            Some(person) => person.name.clone(),
            None => PersonName::new(delivery.place.as_str()).map_err(|_| MailReplyError::Because("email.person"))?,
        };
        let exact = read.exact && read.has_text;
        Ok(AuthenticatedReply {
            delivery,
            by: Actor::Person(name),
            words: read.words,
            rest: ReplyRemainder::from_word(&read.rest),
            exact,
        })
    }

    /// Acts on an answer, and tells the person about it. The outcome itself is shown by the outbox.
    async fn apply_answer(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        answer: AuthenticatedReply,
    ) -> Result<(), ChannelError> {
        let AuthenticatedReply { delivery, by, words, rest, exact } = answer;
        let question = ApprovalRequest::read(gw, delivery.approval).await?.shown_in(&delivery);
        let approval = &question.card.approval;
        // A freeze is accepted even after the approval has ended.
        if reply_meaning::parse_freeze(&words).is_none() {
            if approval.is_over(gw.now()) {
                tell(post, &delivery, "Nothing changed: nobody answered in time, so it was denied.").await;
                return Ok(());
            }
            if !approval.state.is_open() {
                let text = format!("Nothing changed: it was already {}.", deciding::describe_approval(approval));
                tell(post, &delivery, &text).await;
                return Ok(());
            }
        }
        let heard = reply_meaning::interpret_reply(&words, rest, question.form());
        let stops = matches!(
            heard,
            Ok(ReplyInterpretation::Answer(ReplyMeaning::Menu(ApprovalReply::Deny(_)) | ReplyMeaning::Freeze(_)))
        );
        if !exact && heard.is_ok() && !stops {
            let text = "Nothing was decided: your mail program changed the text of your reply, so its exact words \
                        are not certain. Reply with plain text, or decide with `sluice approvals`. 3 still denies.";
            return self.tell_once(gw, post, &delivery, text).await;
        }
        let meaning =
            match replies::understand(gw, &question, Some(&delivery), &replies::WrittenReply::mail(&words, rest)).await
            {
                Ok(ReplyOutcome::Meant(meaning)) => meaning,
                // A message with what was understood is on its way.
                Ok(ReplyOutcome::ToConfirm) => return Ok(()),
                Ok(ReplyOutcome::Tell(text)) => return self.tell_once(gw, post, &delivery, &text).await,
                Ok(ReplyOutcome::Unclear(unclear)) => {
                    return self.tell_once(gw, post, &delivery, &standing::repeat(&question, unclear)).await;
                }
                Err(no) => return Err(no.into()),
            };
        let voice = DecisionSource { by, channel: NAME, ceiling: Some(gw.config.approvals.email_ceiling) };
        let text = match deciding::decide(gw, &voice, &question, meaning).await {
            Ok(AnswerOutcome::Decided { .. }) => return Ok(()),
            Ok(AnswerOutcome::Waiting { have, need }) => format!("Noted: {have} of {need} people have approved."),
            Ok(AnswerOutcome::Late(approval)) => {
                format!("Nothing changed: it was already {}.", deciding::describe_approval(&approval))
            }
            Ok(AnswerOutcome::Frozen(scope)) => {
                format!("Frozen: {scope}. Nothing covered by it starts until it is unfrozen.")
            }
            Err(no) if no.refusal.code().status() >= 500 => return Err(no.into()),
            Err(no) => format!("Nothing was decided: {}.", no.refusal),
        };
        tell(post, &delivery, &text).await;
        Ok(())
    }

    /// Asks once more, and only once: two programs that do not understand each other would write to each other forever.
    async fn tell_once(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        delivery: &ApprovalDelivery,
        text: &str,
    ) -> Result<(), ChannelError> {
        let news = format!("menu:{}:{}", delivery.approval, short(&delivery.place));
        if !gw.store.has_channel_news(NAME, &news).await? {
            tell(post, delivery, text).await;
            gw.store.record_channel_news(NAME, &news, None).await?;
        }
        Ok(())
    }

    /// A known person replied to a message that takes no answer: a reminder or an outcome. They are told so once an
    /// hour.
    async fn tell_nothing_decided(
        &self,
        gw: &Gateway,
        post: &dyn ReplyNotifier,
        from: &str,
    ) -> Result<(), ChannelError> {
        let news = format!("lost:{}:{}", short(from), hour(gw));
        if !gw.store.has_channel_news(NAME, &news).await? {
            let text = "Nothing was decided: please reply to the message that holds the approval request, at its \
                        reply address.";
            post.tell(from, None, text).await;
            gw.store.record_channel_news(NAME, &news, None).await?;
        }
        Ok(())
    }

    /// How often this mail has been tried, including this time.
    fn count_attempt(&self, uid: u32) -> u32 {
        let mut tries = self.tries.lock();
        *tries = if tries.0 == uid { (uid, tries.1 + 1) } else { (uid, 1) };
        tries.1
    }

    /// Whether an address has sent too many wrong tokens, in this hour or the last.
    async fn is_locked(&self, gw: &Gateway, from: &str) -> Result<bool, ChannelError> {
        for before in 0..2 {
            if gw.store.has_channel_news(NAME, &wrong(gw, from, before, WRONG_TOKENS)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The token belongs to no message to this person: it is old, or a guess. After a few guesses people are alerted.
    async fn record_wrong_token(&self, gw: &Gateway, from: &str) -> Result<(), ChannelError> {
        let mut count = 1;
        while count < WRONG_TOKENS && gw.store.has_channel_news(NAME, &wrong(gw, from, 0, count)).await? {
            count += 1;
        }
        gw.store.record_channel_news(NAME, &wrong(gw, from, 0, count), None).await?;
        if count == WRONG_TOKENS {
            let why = "wrong tokens in replies from a known address: someone is guessing; replies from it are ignored \
                       for an hour";
            let body = serde_json::json!({"channel": NAME, "why": why});
            let id = MessageId::mint(gw.ids.as_ref());
            let message =
                OutboxMessage { id, topic: "channel.locked".into(), severity: MessageSeverity::Critical, body };
            gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
        }
        Ok(())
    }
}

async fn tell(post: &dyn ReplyNotifier, delivery: &ApprovalDelivery, text: &str) {
    post.tell(&delivery.place, delivery.message.as_deref(), text).await;
}

/// The one sender address of a mail.
fn sender(read: &ReplyMailFacts) -> Result<String, MailReplyError> {
    match (read.from_headers, read.from.as_slice()) {
        (1, [one]) => Ok(one.to_lowercase()),
        _ => Err(MailReplyError::Because("email.from_header")),
    }
}

/// The name of the n-th wrong token of an address in an hour.
fn wrong(gw: &Gateway, from: &str, hours_before: i64, count: u32) -> String {
    format!("wrong:{}:{}:{count}", short(from), hour(gw) - hours_before)
}

fn hour(gw: &Gateway) -> i64 {
    gw.now().as_millis() / i64::try_from(HOUR.as_millis()).unwrap_or(i64::MAX)
}

fn short(text: &str) -> String {
    hex::encode(Sha256::digest(text.to_lowercase()).get(..8).unwrap_or_default())
}

/// A date in IMAP format: `05-Nov-2026`.
fn day(at: sluice_core::UtcMillis) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%d-%b-%Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox() -> ReplyMailbox {
        let text = "email: {smtp_host: localhost, from: gate@example.test, reply_to: replies@example.test, \
                    imap_host: localhost, imap_secret: replies, dns: [\"127.0.0.1:53\"]}\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sluice.yaml");
        std::fs::write(&file, text).unwrap();
        let around = sluice_config::ConfigContext { here: folder.path().to_owned(), ..Default::default() };
        let (config, _) = sluice_config::Config::load(Some(&file), &[], &around).unwrap();
        ReplyMailbox::new(&config.email, None).unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_token_comes_back_as_the_secret_it_was_made_of() {
        let (inbox, secret) = (inbox(), URL_SAFE_NO_PAD.encode([7_u8; 16]));
        let address = inbox.address_for(&secret).unwrap();
        assert_eq!(address, format!("replies+{}@example.test", "07".repeat(16)));
        assert_eq!(inbox.secret_in(std::slice::from_ref(&address)), Some(secret.clone()));
        assert_eq!(inbox.secret_in(&[address.to_uppercase(), "boss@example.test".into()]), Some(secret));
    }

    #[tokio::test]
    async fn an_address_without_exactly_one_token_has_none() {
        let inbox = inbox();
        let with = |token: &str| format!("replies+{token}@example.test");
        let (one, other) = ("07".repeat(16), "08".repeat(16));
        for to in [
            vec!["replies@example.test".to_owned()],
            vec![with("")],
            vec![with("07")],
            vec![with(&"zz".repeat(16))],
            vec![format!("replies+{one}@example.test.evil.example")],
            vec![format!("other+{one}@example.test")],
            vec![with(&one), with(&other)],
            vec![],
        ] {
            assert_eq!(inbox.secret_in(&to), None, "{to:?}");
        }
    }

    #[test]
    fn a_day_is_written_as_the_protocol_wants_it() {
        assert_eq!(day(sluice_core::UtcMillis::from_millis(1_795_000_000_000)), "18-Nov-2026");
    }
}
