//! Approval settings: the people who are asked, where they are asked, and what a channel may approve.

use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::approval::risk;
use sluice_core::policy::reading::{YamlNode, YamlValue};
use sluice_core::{Millis, PersonName};

use super::channels::BaseUrl;
use super::section::section;
use super::setting::{Setting, SettingError, choice};

section! {
    /// Approval requests to people.
    Approvals at "approvals" {
        /// How long a person can answer an approval request. After that the write is denied.
        expiry: Millis = Millis::from_hours(1); within Millis::from_secs(30)..=Millis::from_hours(7 * 24),
        /// The people who are asked: a list, each with `name`, `telegram` (the user's number), `chat` (the number of
        /// the chat; by default that of the user) and `email`. Calls that needed no approval (tier `notify`) are
        /// reported in a digest, or as `notices` says: `digest`, `each` or `off`; over the first channel of the person,
        /// or the one that `notices_over` names: `telegram` or `email`.
        people: Vec<ConfiguredPerson> = Vec::new(),
        /// The chats and addresses that a request to the approval API may name in addition to those of `people`: a list
        /// such as `telegram:123456` and `email:you@example.com`, or `any`.
        targets: AllowedTargets = AllowedTargets::These(Vec::new()),
        /// Names of those among `people` who are asked only if nobody else has answered.
        second: Vec<PersonName> = Vec::new(),
        /// How long to wait before `second` are asked too.
        escalate_after: Millis = Millis::from_mins(15); within Millis::from_secs(1)..=Millis::from_hours(7 * 24),
        /// How long to wait before an unanswered approval request is sent once more. `0s` for never.
        remind_after: Millis = Millis::from_mins(10); within Millis::ZERO..=Millis::from_hours(7 * 24),
        /// Most approval requests that a person is sent in an hour. Further requests wait, and the person is told so
        /// once.
        prompts_per_hour: u32 = 30; within 1..=100_000,
        /// Most approval requests of one agent that a person is sent in an hour. Further requests of that agent wait,
        /// and the person is told so once; requests of other agents are still sent.
        prompts_per_agent: u32 = 10; within 1..=100_000,
        /// How often people get a digest of the calls that needed no approval, if there were any.
        digest_every: Millis = Millis::from_hours(24); within Millis::from_mins(1)..=Millis::from_hours(7 * 24),
        /// The risk from which two different people must approve.
        two_people: Needs = Needs::Never,
        /// The highest risk that can be approved over Telegram. Anything above is decided with an operator's token.
        telegram_ceiling: Risk = Risk::High,
        /// The highest risk that can be approved by e-mail.
        email_ceiling: Risk = Risk::Medium,
        /// How long `2` (allow for this session) lasts for a client of the approval API, which executes its actions
        /// itself.
        client_session: Millis = Millis::from_hours(8); within Millis::from_secs(1)..=Millis::from_hours(30 * 24),
        /// How many requests `2` answers for a client of the approval API.
        client_session_uses: u32 = 200; within 1..=1_000_000,
        /// The address at which people reach this gateway: `https://gate.example.org`. With it, a message to one person
        /// holds a link to a page that shows the approval request and takes the answer. The page may approve what the
        /// channel of the link may approve.
        page: Option<BaseUrl> = None,
        /// Whether clients that can show an address to the person at the keyboard get one for a call that waits for a
        /// person. The page behind it, at `page`, shows the state of the call and decides nothing.
        elicit: bool = false,
        /// Whether `sluice serve` prints each waiting approval request, if it runs in a terminal.
        terminal: bool = true,
        /// Whether the terminal of `sluice serve` rings its bell for each approval request.
        bell: bool = false,
        /// Whether `sluice serve` shows a desktop notification (`notify-send`) for each approval request. It shows who
        /// asks, and not what for.
        desktop: bool = false,
    }
}

choice! {
    /// How bad a wrong approval can be.
    Risk {
        /// The effect stays on this machine, or can be undone.
        Low = "low",
        /// Something leaves and cannot be called back, nothing describes what the action does, or a client carries it
        /// out.
        Medium = "medium",
        /// Many or new targets, money, code, a deletion that cannot be undone, or many writes at once.
        High = "high",
    }
}

choice! {
    /// The risk from which something is needed.
    Needs {
        /// It is never needed.
        Never = "never",
        /// It is needed for high risk.
        High = "high",
        /// It is needed for medium risk and above.
        Medium = "medium",
        /// It is always needed.
        Always = "always",
    }
}

choice! {
    /// How a person is notified about calls that needed no approval.
    NoticeChoice {
        /// All of them in one message at intervals.
        Digest = "digest",
        /// One message for each call, once it is over.
        Each = "each",
        /// No messages; the calls are in the audit log.
        Off = "off",
    }
}

choice! {
    /// The channel over which a person is notified.
    NoticeChannel {
        /// The person's Telegram chat.
        Telegram = "telegram",
        /// The person's e-mail address.
        Email = "email",
    }
}

impl Risk {
    /// A number for comparison: larger is worse.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match self {
            Self::Low => 0,
            Self::Medium => 1,
            Self::High => 2,
        }
    }
}

impl From<risk::ApprovalRisk> for Risk {
    fn from(risk: risk::ApprovalRisk) -> Self {
        match risk {
            risk::ApprovalRisk::Low => Self::Low,
            risk::ApprovalRisk::Medium => Self::Medium,
            risk::ApprovalRisk::High => Self::High,
        }
    }
}

impl Needs {
    /// Whether it is needed at this risk.
    #[must_use]
    pub const fn at(self, risk: Risk) -> bool {
        match self {
            Self::Never => false,
            Self::High => risk.rank() >= 2,
            Self::Medium => risk.rank() >= 1,
            Self::Always => true,
        }
    }
}

/// A person who may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredPerson {
    /// The name in the audit log.
    pub name: PersonName,
    /// The number of the person's Telegram account.
    pub telegram: Option<i64>,
    /// The number of the chat in which the person is asked.
    pub chat: Option<i64>,
    /// The e-mail address, in lower case.
    pub email: Option<String>,
    /// How the person is notified about calls that needed no approval.
    pub notices: NoticeChoice,
    /// The channel for these notices, if not the first one over which the person can be reached.
    pub notices_over: Option<NoticeChannel>,
}

impl ConfiguredPerson {
    /// The chat in which the person is asked: their own, unless another one is configured.
    #[must_use]
    pub fn chat(&self) -> Option<i64> {
        self.chat.or(self.telegram)
    }
}

/// The chats and addresses that a request may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTargets {
    /// Any chat or address.
    Any,
    /// Only these: channel and place.
    These(Vec<(String, String)>),
}

impl Approvals {
    /// Whether a request may name this place: a person is asked there, or the operator allows it.
    #[must_use]
    pub fn allows(&self, channel: &str, place: &str) -> bool {
        let listed = match &self.targets {
            AllowedTargets::Any => true,
            AllowedTargets::These(list) => list.iter().any(|(c, p)| c == channel && p.eq_ignore_ascii_case(place)),
        };
        listed || self.people.iter().any(|person| person.is_at(channel, place))
    }

    /// The person who is asked there, if there is only one.
    #[must_use]
    pub fn person_at(&self, channel: &str, place: &str) -> Option<&ConfiguredPerson> {
        let mut found = self.people.iter().filter(|person| person.is_at(channel, place));
        found.next().filter(|_| found.next().is_none())
    }
}

impl ConfiguredPerson {
    /// The person's chat or address on this channel, if there is one.
    #[must_use]
    pub fn place(&self, channel: &str) -> Option<String> {
        match channel {
            "telegram" => self.chat().map(|chat| chat.to_string()),
            "email" => self.email.clone(),
            _ => None,
        }
    }

    /// Whether the person is asked there.
    #[must_use]
    pub fn is_at(&self, channel: &str, place: &str) -> bool {
        match channel {
            "telegram" => self.chat().is_some_and(|chat| chat.to_string() == place),
            "email" => self.email.as_deref().is_some_and(|email| email.eq_ignore_ascii_case(place)),
            _ => false,
        }
    }
}

/// An e-mail address in lower case, without a display name before it.
pub(crate) fn address(text: &str) -> Result<String, SettingError> {
    let fine =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._%+-".contains(&b));
    match text.split_once('@') {
        Some((local, domain)) if fine(local) && fine(domain) && domain.contains('.') => Ok(text.to_lowercase()),
        Some(_) | None => Err(SettingError::expected("an address such as `you@example.com`", text)),
    }
}

const KEYS: [&str; 6] = ["name", "telegram", "chat", "email", "notices", "notices_over"];

impl Setting for ConfiguredPerson {
    const WHAT: &'static str = "a map with name, telegram, chat, email and notices";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let (mut name, mut telegram, mut chat, mut email) = (None, None, None, None);
        let (mut notices, mut notices_over) = (NoticeChoice::Digest, None);
        for (key, value) in entries {
            let read = match key.text.as_str() {
                "name" => text(value).and_then(|text| {
                    let bad = |why: sluice_core::ids::NameError| {
                        SettingError::expected("a person's name", &text).hint(why.to_string())
                    };
                    PersonName::new(text.clone()).map(|read| name = Some(read)).map_err(bad)
                }),
                "telegram" => number(value).map(|read| telegram = Some(read)),
                "chat" => number(value).map(|read| chat = Some(read)),
                "email" => text(value).and_then(|text| address(&text)).map(|read| email = Some(read)),
                "notices" => {
                    text(value).and_then(|text| NoticeChoice::from_text(&text, base)).map(|read| notices = read)
                }
                "notices_over" => text(value)
                    .and_then(|text| NoticeChannel::from_text(&text, base))
                    .map(|read| notices_over = Some(read)),
                _ => return Err(SettingError::unknown_key(key, &format!("a person has {}", KEYS.join(", ")), &KEYS)),
            };
            read.map_err(|bad| bad.inside(key, value))?;
        }
        let name = name.ok_or_else(|| SettingError::new("must have a `name`"))?;
        if chat.is_some() && telegram.is_none() {
            return Err(SettingError::new("has a `chat` but no `telegram` user")
                .hint("anyone in the chat could answer; name the user who may"));
        }
        let has_channel = match notices_over {
            Some(NoticeChannel::Telegram) => telegram.is_some(),
            Some(NoticeChannel::Email) => email.is_some(),
            None => true,
        };
        if !has_channel {
            return Err(SettingError::new("names a channel in `notices_over` at which this person has no address"));
        }
        Ok(Self { name, telegram, chat, email, notices, notices_over })
    }

    fn shown(&self) -> Value {
        let fields = [
            ("name", json!(self.name.as_str())),
            ("telegram", json!(self.telegram)),
            ("chat", json!(self.chat)),
            ("email", json!(self.email)),
            ("notices", json!((self.notices != NoticeChoice::Digest).then(|| self.notices.as_str()))),
            ("notices_over", json!(self.notices_over.map(NoticeChannel::as_str))),
        ];
        let given = fields.into_iter().filter(|(_, value)| !value.is_null());
        Value::Object(given.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
            "name": {"type": "string"}, "telegram": {"type": "integer"}, "chat": {"type": "integer"},
            "email": {"type": "string"}, "notices": NoticeChoice::shape(), "notices_over": NoticeChannel::shape()}})
    }
}

fn text(node: &YamlNode) -> Result<String, SettingError> {
    match &node.kind {
        YamlValue::Text(text) => Ok(text.clone()),
        _ => Err(SettingError::new(format!("must be a text, not {}", node.noun()))),
    }
}

fn number(node: &YamlNode) -> Result<i64, SettingError> {
    match &node.kind {
        YamlValue::Integer(number) => Ok(*number),
        YamlValue::Text(text) => text.parse().map_err(|_| SettingError::expected("a number", text)),
        _ => Err(SettingError::new(format!("must be a number, not {}", node.noun()))),
    }
}

impl Setting for AllowedTargets {
    const WHAT: &'static str = "a list such as `[telegram:123456, email:you@example.com]`, or `any`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        if text == "any" {
            return Ok(Self::Any);
        }
        text.split(',').map(|item| target(item.trim())).collect::<Result<_, _>>().map(Self::These)
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        match &node.kind {
            YamlValue::Text(text) => Self::from_text(text, base),
            YamlValue::List(items) => {
                let read =
                    |item: &YamlNode| text(item).and_then(|text| target(&text)).map_err(|bad| bad.at(item.place));
                items.iter().map(read).collect::<Result<_, _>>().map(Self::These)
            }
            _ => Err(Self::not(node)),
        }
    }

    fn shown(&self) -> Value {
        match self {
            Self::Any => json!("any"),
            Self::These(list) => list.iter().map(|(channel, place)| json!(format!("{channel}:{place}"))).collect(),
        }
    }

    fn shape() -> Value {
        json!({"anyOf": [{"const": "any"}, {"type": "array", "items": {"type": "string", "pattern": "^(telegram|email):"}}]})
    }
}

fn target(text: &str) -> Result<(String, String), SettingError> {
    match text.split_once(':') {
        Some(("telegram", chat)) if chat.parse::<i64>().is_ok() => Ok(("telegram".into(), chat.into())),
        Some(("email", to)) => Ok(("email".into(), address(to)?)),
        Some(_) | None => Err(SettingError::expected("`telegram:` and a number, or `email:` and an address", text)),
    }
}
