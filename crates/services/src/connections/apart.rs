//! Keeps the mailboxes of agents apart from the mailboxes in which people approve.
//!
//! Takes an account and the settings of approvals; gives the address that conflicts. Promise: an agent never reads a
//! mailbox in which its own approval requests arrive or are answered, a message of the gateway never enters a replica,
//! and no mail of an agent goes to an address where answers are read (attack A1: otherwise an agent could approve its
//! own writes).

use serde_json::Value;
use sluice_config::{AllowedTargets, Config};
use sluice_core::mail::Mail;
use sluice_core::refusal::{Code, Refusal};

/// Domains whose mailboxes ignore dots; the service treats them as one domain.
const DOTLESS: [&str; 2] = ["gmail.com", "googlemail.com"];

/// The refusal of an account in which people receive or answer approval requests; `None` if it may be connected.
pub(super) fn refused(config: &Config, account: &str) -> Option<Refusal> {
    let mailbox = mailbox(account);
    let taken = asked(config).chain(answered(config)).find(|address| self::mailbox(address) == mailbox)?;
    let text = format!(
        "`{account}` is where people are asked or answer (`{taken}` in `approvals` or `email`): an agent that reads it could \
         answer for them; ask them elsewhere, or connect another mailbox"
    );
    Some(Refusal::new(Code::StoreConflict).with_text(&text))
}

/// Whether a message was sent by this gateway.
pub(super) fn is_own_letter(config: &Config, mail: &Mail) -> bool {
    let own = |address: &str| senders(config).any(|known| mailbox(known) == mailbox(address));
    // Of two readings, one is enough: a message of the gateway must not come in through an ambiguity.
    let readings = mail.ambiguous.iter().flat_map(|doubt| &doubt.senders);
    let parts = readings.flat_map(|text| text.split(|c: char| c.is_whitespace() || "<>,;\"'()[]:".contains(c)));
    let is_ours =
        mail.from.iter().map(|from| from.address.as_str()).chain(parts.filter(|part| part.contains('@'))).any(own);
    is_ours && mail.subject_line().contains("appr_")
}

/// The refusal of a mail to an address where answers are read; `None` if it goes elsewhere.
pub(super) fn not_to_us(config: &Config, arguments: &serde_json::Map<String, Value>) -> Option<Refusal> {
    let taken: Vec<String> = answered(config).map(mailbox).collect();
    let named = ["to", "cc", "bcc"].into_iter().filter_map(|name| arguments.get(name));
    let hit = named.flat_map(texts).any(|text| {
        let parts = text.split(|c: char| c.is_whitespace() || "<>,;\"'()[]:".contains(c));
        parts.filter(|part| part.contains('@')).any(|part| taken.contains(&mailbox(part)))
    });
    let text = "answers to approval requests are read there: an agent cannot send mail to this address";
    hit.then(|| Refusal::new(Code::PolicyBlocked).with_text(text))
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// Addresses at which people receive approval requests, if e-mail is configured.
fn asked(config: &Config) -> impl Iterator<Item = &str> {
    let sends = config.email.smtp_host.is_some();
    let people = config.approvals.people.iter().filter_map(|person| person.email.as_deref());
    let further = match &config.approvals.targets {
        AllowedTargets::These(list) => list.as_slice(),
        AllowedTargets::Any => &[],
    };
    let further = further.iter().filter(|(channel, _)| channel == "email").map(|(_, place)| place.as_str());
    people.chain(further).filter(move |_| sends)
}

/// Addresses that answers go to.
fn answered(config: &Config) -> impl Iterator<Item = &str> {
    let user = config.email.imap_user.iter().map(|user| user.as_str()).filter(|user| user.contains('@'));
    senders(config).chain(user)
}

fn senders(config: &Config) -> impl Iterator<Item = &str> {
    config.email.from.iter().chain(&config.email.reply_to).map(|address| address.as_str())
}

/// The mailbox that a service maps an address to: without case, without the part after a `+`, and without dots where
/// they are ignored.
fn mailbox(address: &str) -> String {
    let address = address.trim().trim_end_matches('.').to_lowercase();
    let (local, domain) = address.rsplit_once('@').unwrap_or((address.as_str(), ""));
    let local = local.split('+').next().unwrap_or_default();
    if DOTLESS.contains(&domain) {
        format!("{}@gmail.com", local.replace('.', ""))
    } else {
        format!("{local}@{domain}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_config::ConfigContext;
    use sluice_core::mail::MailAddress;

    fn config() -> Config {
        let folder = tempfile::tempdir().unwrap();
        let text = "approvals: {people: [{name: ana, email: ana.lee@gmail.com}]}\n\
                    email: {smtp_host: mail.example.com, from: gate@example.com, reply_to: answers@example.com}\n";
        std::fs::write(folder.path().join("sluice.yaml"), text).unwrap();
        let around = ConfigContext { here: folder.path().to_path_buf(), ..ConfigContext::default() };
        Config::load(Some(&folder.path().join("sluice.yaml")), &[], &around).unwrap().0
    }

    #[test]
    fn a_mailbox_in_which_people_are_asked_or_answer_is_not_an_agents() {
        let config = config();
        for account in [
            "ana.lee@gmail.com",
            "AnaLee@googlemail.com",
            "ana.lee+x@gmail.com",
            "answers@example.com",
            "gate@example.com",
        ] {
            let no = refused(&config, account);
            assert_eq!(no.map(|no| no.code()), Some(Code::StoreConflict), "{account}");
        }
        for account in ["office@example.com", "ana@gmail.com", "ana.lee@example.com"] {
            assert!(refused(&config, account).is_none(), "{account}");
        }
    }

    #[test]
    fn a_letter_of_ours_is_known_and_nobody_elses_is() {
        let from = |address: &str| Some(MailAddress { name: None, address: address.into() });
        let subject = "Send a mail [appr_0192cc091400e8890a402ab995e203a0]";
        let mail = Mail { from: from("Gate@example.com"), subject: subject.into(), ..Mail::default() };
        assert!(is_own_letter(&config(), &mail));
        assert!(!is_own_letter(&config(), &Mail { from: from("tom@example.com"), ..mail.clone() }));
        assert!(!is_own_letter(&config(), &Mail { subject: "Lunch".into(), ..mail }));
    }

    #[test]
    fn no_mail_of_an_agent_goes_to_where_answers_are_read() {
        let config = config();
        for arguments in [
            json!({"to": "answers+0a0b@example.com"}),
            json!({"to": "tom@example.com", "cc": ["Ana <x@example.com>", "\"a\" <ANSWERS@example.com>"]}),
            json!({"to": "tom@example.com", "bcc": "a@b.example,gate@example.com"}),
        ] {
            assert!(not_to_us(&config, arguments.as_object().unwrap()).is_some(), "{arguments}");
        }
        let fine = json!({"to": "tom@example.com", "body": "answers@example.com"});
        assert!(not_to_us(&config, fine.as_object().unwrap()).is_none());
    }
}
