//! The mailbox replies arrive in: fetched, checked and acted on, one by one.
//!
//! Takes mails above the last one that was acted on; gives decisions. Promise: a mail decides only if all of it holds:
//! one sender, who is the person asked; a signature of the sender's domain over sender, recipients, subject and body;
//! the token of the very letter it answers; one exact answer. Whatever lacks any of it is on record and decides nothing.
//! How far was read is kept after each mail was acted on, so that none is lost and none decides twice.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use sluice_core::approval::mail::Rest;
use sluice_core::approval::reply::Reply;
use sluice_core::approval::voice::{self, Meaning, Understood};
use sluice_core::ids::{ConnectionName, MessageId, SecretName};
use sluice_core::{Actor, PersonName, Span, hex};
use sluice_store::{Delivery, Message, Severity};
use zeroize::Zeroizing;

use super::NAME;
use crate::Gateway;
use crate::channels::Fault;
use crate::channels::imap::{Folder, New, Place};
use crate::channels::letter::hash;
use crate::channels::mail_auth::{self, Dns, Read, Records, Unread};
use crate::config::{Email as Settings, Security};
use crate::egress::wire::trust;
use crate::gate::deciding::{self, Heard, Question, Voice};
use crate::gate::replies::{self, Reading};
use crate::gate::standing;
use crate::services::Work;
use crate::vault::Use;

/// What the password must be for.
pub const CAPABILITY: &str = "approvals.replies";
/// How far back a mailbox is read that was never read before, or numbers its mail anew: longer than a question lives.
const LOOK_BACK: Span = Span::from_hours(8 * 24);
/// How often a mail is tried whose keys cannot be looked up.
const TRIES: u32 = 3;
/// So many wrong tokens from one address in an hour, and it is not listened to for the next.
const WRONG_TOKENS: u32 = 10;
const HOUR: Span = Span::from_hours(1);

/// A mailbox.
pub(super) struct Inbox {
    place: Place,
    user: String,
    secret: SecretName,
    done_folder: Option<String>,
    poll: Span,
    largest: u64,
    forwarders: Vec<String>,
    records: Arc<dyn Records>,
    /// Where replies go: what stands before and after the `@`.
    address: (String, String),
    /// Under which name the database keeps how far was read.
    mark: String,
    open: tokio::sync::Mutex<Option<Folder>>,
    /// Which mail could not be judged yet, and how often.
    tries: Mutex<(u32, u32)>,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why a mail was not heard.
enum Unheard {
    Because(&'static str),
    Fault(Fault),
}

impl<E: Into<Fault>> From<E> for Unheard {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Somebody who proved who they are, and what they answer.
struct Answer {
    delivery: Delivery,
    by: Actor,
    words: String,
    rest: Rest,
    exact: bool,
}

/// Mail to people, as far as this file needs it.
pub(super) trait Post: Send + Sync {
    /// Says something to a person, in the conversation of a message if one is named.
    fn tell<'a>(&'a self, place: &'a str, message: Option<&'a str>, text: &'a str) -> Work<'a, ()>;
}

impl Inbox {
    /// The mailbox as configured; none if there is no host.
    pub(super) fn new(settings: &Settings, records: Option<Arc<dyn Records>>) -> Result<Option<Self>, String> {
        let Some(host) = &settings.imap_host else { return Ok(None) };
        let host = host.as_str().to_owned();
        let plain_here = ["127.0.0.1", "localhost", "::1"].contains(&host.as_str());
        if settings.imap_security == Security::Off && !plain_here {
            return Err("mail without TLS is fetched from this machine only".into());
        }
        let replies = settings.reply_to.as_ref().or(settings.from.as_ref());
        let address = replies.ok_or("no address for replies: set `email.reply_to`")?.as_str();
        let user = settings.imap_user.as_ref().map_or(address, |user| user.as_str()).to_owned();
        let secret = settings.imap_secret.clone().ok_or("no password for the mailbox: set `email.imap_secret`")?;
        let (local, domain) = address.split_once('@').ok_or("no address for replies")?;
        let mut tls = rustls::ClientConfig::clone(trust(settings.ca_file.as_deref())?.as_ref());
        tls.alpn_protocols.clear();
        let folder = settings.imap_folder.as_str().to_owned();
        let mark = Sha256::digest(format!("{user}\0{host}\0{}\0{folder}", settings.imap_port));
        let records = match records {
            Some(records) => records,
            None => Arc::new(Dns::new(&settings.dns)?),
        };
        Ok(Some(Self {
            mark: format!("{NAME}:{}", hex::encode(mark.get(..8).unwrap_or_default())),
            address: (local.to_owned(), domain.to_owned()),
            place: Place {
                port: u16::try_from(settings.imap_port).map_err(|_| "no such port")?,
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

    /// Where the reply to a letter with this secret goes.
    pub(super) fn address_for(&self, secret: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
        let (local, domain) = &self.address;
        Some(format!("{local}+{}@{domain}", hex::encode(&bytes)))
    }

    /// The secret whose token stands in one of these addresses; nothing if there is none, or more than one.
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

    /// Acts on everything new, then waits a while for more.
    pub(super) async fn hear(&self, gw: &Gateway, post: &dyn Post) -> Result<(), Fault> {
        let mut held = self.open.lock().await;
        let folder = self.caught_up(gw, post, held.take()).await?;
        gw.hearing.well(NAME, gw.now());
        *held = Some(folder.wait(self.poll.as_duration()).await?);
        Ok(())
    }

    /// Acts on everything new.
    pub(super) async fn look(&self, gw: &Gateway, post: &dyn Post) -> Result<(), Fault> {
        let mut held = self.open.lock().await;
        *held = Some(self.caught_up(gw, post, held.take()).await?);
        Ok(())
    }

    async fn caught_up(&self, gw: &Gateway, post: &dyn Post, open: Option<Folder>) -> Result<Folder, Fault> {
        let mut folder = match open {
            Some(mut folder) => {
                folder.refresh().await?;
                folder
            }
            None => self.connect(gw).await?,
        };
        let mut last = self.go_on_from(gw, &mut folder).await?;
        loop {
            let new = folder.above(last).await?;
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

    async fn connect(&self, gw: &Gateway) -> Result<Folder, Fault> {
        let broken = |why: String| Fault::Broken { why };
        let connection = ConnectionName::new(NAME).map_err(|error| broken(error.to_string()))?;
        let hosts = [self.place.host.clone()];
        let by = Actor::Node(gw.store.node().clone());
        let wanted = Use { capability: CAPABILITY, connection: &connection, hosts: &hosts, by };
        let secret = gw.vault.take(&self.secret, &wanted).await;
        let secret = secret.map_err(|error| broken(format!("mail: no password for the mailbox: {error}")))?;
        let password = std::str::from_utf8(secret.expose()).map_err(|_| broken("mail: no password".into()))?;
        let password = Zeroizing::new(password.trim_end_matches(['\r', '\n']).to_owned());
        Folder::open(&self.place, &self.user, &password).await
    }

    /// The number of the last mail that was acted on.
    async fn go_on_from(&self, gw: &Gateway, folder: &mut Folder) -> Result<u32, Fault> {
        let mark = gw.store.channel_mark(&self.mark).await?;
        let known = mark.as_deref().and_then(|mark| {
            let (validity, last) = mark.split_once(' ')?;
            Some((validity.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
        });
        if let Some((_, last)) = known.filter(|(validity, _)| *validity == folder.validity) {
            return Ok(last);
        }
        // Never read, or numbered anew: numbers mean nothing, so that days have to do. What was acted on before is
        // known by its bytes, and a question has one answer.
        let last = folder.before(&day(gw.now() - LOOK_BACK)).await?;
        gw.store.set_channel_mark(&self.mark, format!("{} {last}", folder.validity)).await?;
        Ok(last)
    }

    /// One mail. It is written down as heard whatever came of it; only what could not be judged now is tried again.
    async fn take_up(&self, gw: &Gateway, post: &dyn Post, folder: &mut Folder, new: New) -> Result<(), Fault> {
        if new.size > self.largest {
            let news = format!("large:{}:{}", folder.validity, new.uid);
            return Ok(gw.store.hear(NAME, &news, Some("email.too_large")).await?);
        }
        let Some(bytes) = folder.fetch(new).await? else { return Ok(()) };
        let news = format!("mail:{}", hex::encode(&Sha256::digest(&bytes)));
        if gw.store.has_heard(NAME, &news).await? {
            return Ok(());
        }
        let refused = match self.mail(gw, post, (&bytes, new.uid)).await {
            Ok(answer) => {
                self.answer(gw, post, answer).await?;
                None
            }
            Err(Unheard::Because(why)) => Some(why),
            Err(Unheard::Fault(fault)) => return Err(fault),
        };
        gw.store.hear(NAME, &news, refused).await?;
        Ok(())
    }

    /// Whether a mail is an answer of somebody we asked. The cheapest check first; nothing is looked up for strangers.
    async fn mail(&self, gw: &Gateway, post: &dyn Post, (bytes, uid): (&[u8], u32)) -> Result<Answer, Unheard> {
        let read = match mail_auth::read(&gw.workers, bytes, &self.forwarders).await {
            Ok(read) => read,
            Err(Unread::Never(why)) => return Err(Unheard::Because(why)),
            Err(Unread::Later(fault) | Unread::NoKeys(fault)) => return Err(fault.into()),
        };
        if read.automatic {
            return Err(Unheard::Because("email.automatic"));
        }
        let from = sender(&read)?;
        if read.to_headers != 1 || read.subject_headers > 1 {
            return Err(Unheard::Because("email.headers"));
        }
        if !gw.config.approvals.allows(NAME, &from) {
            return Err(Unheard::Because("email.sender"));
        }
        if self.is_locked(gw, &from).await? {
            return Err(Unheard::Because("email.locked"));
        }
        match mail_auth::judge(&gw.workers, self.records.as_ref(), (bytes, &read), (&self.forwarders, gw.now())).await {
            Ok(None) => {}
            Ok(Some(why)) | Err(Unread::Never(why)) => return Err(Unheard::Because(why)),
            // A name that never resolves must not keep everybody else's answers waiting.
            Err(Unread::NoKeys(_)) if self.tried(uid) >= TRIES => return Err(Unheard::Because("email.no_keys")),
            Err(Unread::Later(fault) | Unread::NoKeys(fault)) => return Err(fault.into()),
        }
        let Some(secret) = self.secret_in(&read.to) else {
            self.lost(gw, post, &from).await?;
            return Err(Unheard::Because("email.no_token"));
        };
        // SECURITY: the token names the letter; whoever answers must be the one it was sent to.
        let delivery = gw.store.delivery_with(hash(&secret)).await?.filter(|known| known.channel == NAME);
        let Some(delivery) = delivery.filter(|known| known.place.eq_ignore_ascii_case(&from)) else {
            self.wrong_token(gw, &from).await?;
            return Err(Unheard::Because("email.token"));
        };
        if read.ids.iter().any(|id| *id != delivery.approval.to_string()) {
            return Err(Unheard::Because("email.other_id"));
        }
        let name = match gw.config.approvals.person_at(NAME, &delivery.place) {
            Some(person) => person.name.clone(),
            None => PersonName::new(delivery.place.as_str()).map_err(|_| Unheard::Because("email.person"))?,
        };
        let exact = read.exact && read.has_text;
        Ok(Answer { delivery, by: Actor::Person(name), words: read.words, rest: Rest::from_word(&read.rest), exact })
    }

    /// What a person means, and what they are told. The outcome itself is told by whoever shows letters.
    async fn answer(&self, gw: &Gateway, post: &dyn Post, answer: Answer) -> Result<(), Fault> {
        let Answer { delivery, by, words, rest, exact } = answer;
        let question = Question::read(gw, delivery.approval).await?.seen_in(&delivery);
        let approval = &question.card.approval;
        // Stopping is never too late.
        if voice::stop(&words).is_none() {
            if approval.is_over(gw.now()) {
                tell(post, &delivery, "Nothing changed: nobody answered in time, so it was denied.").await;
                return Ok(());
            }
            if !approval.state.is_open() {
                let text = format!("Nothing changed: it was already {}.", deciding::told(approval));
                tell(post, &delivery, &text).await;
                return Ok(());
            }
        }
        let heard = voice::hear(&words, rest, question.form());
        let stops = matches!(heard, Ok(Understood::Answer(Meaning::Menu(Reply::Deny(_)) | Meaning::Freeze(_))));
        if !exact && heard.is_ok() && !stops {
            let text = "Nothing was decided: your mail program packed the text of your reply, so that it cannot be \
                        taken at its word. Reply with plain text, or decide with `sluice approvals`. 3 still denies.";
            return self.once(gw, post, &delivery, text).await;
        }
        let meaning =
            match replies::understand(gw, &question, Some(&delivery), &replies::Written::mail(&words, rest)).await {
                Ok(Reading::Meant(meaning)) => meaning,
                // A letter with what was understood is on its way.
                Ok(Reading::ToConfirm) => return Ok(()),
                Ok(Reading::Tell(text)) => return self.once(gw, post, &delivery, &text).await,
                Ok(Reading::Unclear(unclear)) => {
                    return self.once(gw, post, &delivery, &standing::repeat(&question, unclear)).await;
                }
                Err(no) => return Err(no.into()),
            };
        let voice = Voice { by, channel: NAME, ceiling: Some(gw.config.approvals.email_ceiling) };
        let text = match deciding::decide(gw, &voice, &question, meaning).await {
            Ok(Heard::Decided { .. }) => return Ok(()),
            Ok(Heard::Waiting { have, need }) => format!("Noted: {have} of {need} people have said yes."),
            Ok(Heard::Late(approval)) => format!("Nothing changed: it was already {}.", deciding::told(&approval)),
            Ok(Heard::Frozen(scope)) => format!("Frozen: {scope}. Nothing of it starts any more."),
            Err(no) if no.refusal.code().status() >= 500 => return Err(no.into()),
            Err(no) => format!("Nothing was decided: {}.", no.refusal),
        };
        tell(post, &delivery, &text).await;
        Ok(())
    }

    /// Asks once more, and only once: two programs that do not understand each other would write for ever.
    async fn once(&self, gw: &Gateway, post: &dyn Post, delivery: &Delivery, text: &str) -> Result<(), Fault> {
        let news = format!("menu:{}:{}", delivery.approval, short(&delivery.place));
        if !gw.store.has_heard(NAME, &news).await? {
            tell(post, delivery, text).await;
            gw.store.hear(NAME, &news, None).await?;
        }
        Ok(())
    }

    /// Somebody we know answered something that takes no answer: a reminder, an outcome. They hear so, once an hour.
    async fn lost(&self, gw: &Gateway, post: &dyn Post, from: &str) -> Result<(), Fault> {
        let news = format!("lost:{}:{}", short(from), hour(gw));
        if !gw.store.has_heard(NAME, &news).await? {
            let text =
                "Nothing was decided: please reply to the letter with the question itself, to the address it names.";
            post.tell(from, None, text).await;
            gw.store.hear(NAME, &news, None).await?;
        }
        Ok(())
    }

    /// How often this mail has been tried, this time included.
    fn tried(&self, uid: u32) -> u32 {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        *tries = if tries.0 == uid { (uid, tries.1 + 1) } else { (uid, 1) };
        tries.1
    }

    /// Whether somebody has guessed too often, in this hour or the last.
    async fn is_locked(&self, gw: &Gateway, from: &str) -> Result<bool, Fault> {
        for before in 0..2 {
            if gw.store.has_heard(NAME, &wrong(gw, from, before, WRONG_TOKENS)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A token of no letter to this person: an old one, or a guess. Guessing ends soon, and people are told.
    async fn wrong_token(&self, gw: &Gateway, from: &str) -> Result<(), Fault> {
        let mut count = 1;
        while count < WRONG_TOKENS && gw.store.has_heard(NAME, &wrong(gw, from, 0, count)).await? {
            count += 1;
        }
        gw.store.hear(NAME, &wrong(gw, from, 0, count), None).await?;
        if count == WRONG_TOKENS {
            let why = "wrong tokens in replies: somebody with a known address is guessing; it is not heard for an hour";
            let body = serde_json::json!({"channel": NAME, "why": why});
            let id = MessageId::mint(gw.ids.as_ref());
            let message = Message { id, topic: "channel.locked".into(), severity: Severity::Critical, body };
            gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
        }
        Ok(())
    }
}

async fn tell(post: &dyn Post, delivery: &Delivery, text: &str) {
    post.tell(&delivery.place, delivery.message.as_deref(), text).await;
}

/// The one address a mail is from.
fn sender(read: &Read) -> Result<String, Unheard> {
    match (read.from_headers, read.from.as_slice()) {
        (1, [one]) => Ok(one.to_lowercase()),
        _ => Err(Unheard::Because("email.from_header")),
    }
}

/// The name of the so-manieth wrong token of an address in an hour.
fn wrong(gw: &Gateway, from: &str, hours_before: i64, count: u32) -> String {
    format!("wrong:{}:{}:{count}", short(from), hour(gw) - hours_before)
}

fn hour(gw: &Gateway) -> i64 {
    gw.now().as_millis() / i64::try_from(HOUR.as_millis()).unwrap_or(i64::MAX)
}

fn short(text: &str) -> String {
    hex::encode(Sha256::digest(text.to_lowercase()).get(..8).unwrap_or_default())
}

/// A day as IMAP writes it: `05-Nov-2026`.
fn day(at: sluice_core::Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%d-%b-%Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox() -> Inbox {
        let text = "email: {smtp_host: localhost, from: gate@example.test, reply_to: replies@example.test, \
                    imap_host: localhost, imap_secret: replies, dns: [\"127.0.0.1:53\"]}\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sluice.yaml");
        std::fs::write(&file, text).unwrap();
        let around = crate::config::Around { here: folder.path().to_owned(), ..Default::default() };
        let (config, _) = crate::config::Config::load(Some(&file), &[], &around).unwrap();
        Inbox::new(&config.email, None).unwrap().unwrap()
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
        assert_eq!(day(sluice_core::Timestamp::from_millis(1_795_000_000_000)), "18-Nov-2026");
    }
}
