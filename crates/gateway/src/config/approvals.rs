//! Questions put to people: who they are, where they are asked, and how much a channel may decide.

use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::approval::risk;
use sluice_core::policy::reading::{Kind, Node, closest, escape};
use sluice_core::{PersonName, Span};

use super::channels::BaseUrl;
use super::section::section;
use super::setting::{Bad, Setting, choice};

section! {
    /// Questions put to people.
    Approvals at "approvals" {
        /// How long a question may be answered. After that the write is denied.
        expiry: Span = Span::from_hours(1); within Span::from_secs(30)..=Span::from_hours(7 * 24),
        /// Who is asked: a list of people, each with `name`, `telegram` (number of the user), `chat` (number of the
        /// chat, that of the user unless said) and `email`. Calls that needed no approval (tier `notify`) are told in a
        /// digest, or as `notices` says: `digest`, `each` or `off`; over the first channel, or the one that
        /// `notices_over` names: `telegram` or `email`.
        people: Vec<Person> = Vec::new(),
        /// Which chats and addresses a request to the approval API may name beside those of `people`: a list such as
        /// `telegram:123456` and `email:you@example.com`, or `any`.
        targets: Targets = Targets::These(Vec::new()),
        /// Names of those among `people` who are only asked when nobody else has answered.
        second: Vec<PersonName> = Vec::new(),
        /// How long until `second` are asked too.
        escalate_after: Span = Span::from_mins(15); within Span::from_secs(1)..=Span::from_hours(7 * 24),
        /// How long until a question nobody has answered is sent once more. `0s` for never.
        remind_after: Span = Span::from_mins(10); within Span::ZERO..=Span::from_hours(7 * 24),
        /// Most questions a person is sent in an hour. The rest waits, and the person is told so once.
        prompts_per_hour: u32 = 30; within 1..=100_000,
        /// Most questions of one agent that a person is sent in an hour. The rest of that agent's waits, and the person is
        /// told so once; questions of other agents are sent all the same.
        prompts_per_agent: u32 = 10; within 1..=100_000,
        /// How often people get a digest of the calls that needed no approval, if there were any.
        digest_every: Span = Span::from_hours(24); within Span::from_mins(1)..=Span::from_hours(7 * 24),
        /// From which risk on two different people must say yes.
        two_people: Needs = Needs::Never,
        /// The highest risk that may be approved over Telegram. Anything above is decided with an operator's token.
        telegram_ceiling: Risk = Risk::High,
        /// The highest risk that may be approved by mail.
        email_ceiling: Risk = Risk::Medium,
        /// How long `2` (allow for this session) lasts for a client of the approval API, which acts by itself.
        client_session: Span = Span::from_hours(8); within Span::from_secs(1)..=Span::from_hours(30 * 24),
        /// How many requests `2` answers for a client of the approval API.
        client_session_uses: u32 = 200; within 1..=1_000_000,
        /// Address under which people reach this gateway: `https://gate.example.org`. With it, letters to one person
        /// carry a link to a page that shows the question and asks again. The page may approve what the channel the
        /// link came over may.
        page: Option<BaseUrl> = None,
        /// Whether clients that can show an address to whoever sits at them get one for a call that waits for a
        /// person. The page behind it, at `page`, says how the call stands and decides nothing.
        elicit: bool = false,
        /// Whether `sluice serve` prints each question that waits, if it runs on a terminal.
        terminal: bool = true,
        /// Whether the terminal of `sluice serve` rings its bell for each question.
        bell: bool = false,
        /// Whether `sluice serve` shows a desktop notification (`notify-send`) for each question. It says who asks, not what.
        desktop: bool = false,
    }
}

choice! {
    /// How bad a wrong approval can be.
    Risk {
        /// It stays on this machine, or it can be taken back.
        Low = "low",
        /// Something leaves and cannot be called back, nobody has described what it does, or a client carries it out.
        Medium = "medium",
        /// Many or unmet targets, money, code, a deletion that cannot be undone, or many writes at once.
        High = "high",
    }
}

choice! {
    /// From which risk on something is needed.
    Needs {
        /// Not at all.
        Never = "never",
        /// For high risk.
        High = "high",
        /// For medium risk and above.
        Medium = "medium",
        /// Always.
        Always = "always",
    }
}

choice! {
    /// How somebody is told about calls that needed no approval.
    NoticeChoice {
        /// All of them in one message from time to time.
        Digest = "digest",
        /// One message for each, once it is over.
        Each = "each",
        /// Not at all; they stand in the record.
        Off = "off",
    }
}

choice! {
    /// Over which channel somebody is told.
    NoticeChannel {
        /// The person's chat at Telegram.
        Telegram = "telegram",
        /// The person's mail address.
        Email = "email",
    }
}

impl Risk {
    /// Larger is worse.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match self {
            Self::Low => 0,
            Self::Medium => 1,
            Self::High => 2,
        }
    }
}

impl From<risk::Risk> for Risk {
    fn from(risk: risk::Risk) -> Self {
        match risk {
            risk::Risk::Low => Self::Low,
            risk::Risk::Medium => Self::Medium,
            risk::Risk::High => Self::High,
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

/// Someone who may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// As the record knows them.
    pub name: PersonName,
    /// Their number at Telegram.
    pub telegram: Option<i64>,
    /// The chat they are asked in.
    pub chat: Option<i64>,
    /// Their address, in lower case.
    pub email: Option<String>,
    /// How they are told about calls that needed no approval.
    pub notices: NoticeChoice,
    /// Over which channel they are told, if not the first over which they can be reached.
    pub notices_over: Option<NoticeChannel>,
}

impl Person {
    /// The chat they are asked in: their own unless another is named.
    #[must_use]
    pub fn chat(&self) -> Option<i64> {
        self.chat.or(self.telegram)
    }
}

/// Which chats and addresses a request may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// Whatever it likes.
    Any,
    /// These: channel and place.
    These(Vec<(String, String)>),
}

impl Approvals {
    /// Whether a request may ask there: a person is, or the operator allows it.
    #[must_use]
    pub fn allows(&self, channel: &str, place: &str) -> bool {
        let listed = match &self.targets {
            Targets::Any => true,
            Targets::These(list) => list.iter().any(|(c, p)| c == channel && p.eq_ignore_ascii_case(place)),
        };
        listed || self.people.iter().any(|person| person.is_at(channel, place))
    }

    /// The person who is asked there, if it is only one.
    #[must_use]
    pub fn person_at(&self, channel: &str, place: &str) -> Option<&Person> {
        let mut found = self.people.iter().filter(|person| person.is_at(channel, place));
        found.next().filter(|_| found.next().is_none())
    }
}

impl Person {
    /// Their chat or address at this channel, if they have one.
    #[must_use]
    pub fn place(&self, channel: &str) -> Option<String> {
        match channel {
            "telegram" => self.chat().map(|chat| chat.to_string()),
            "email" => self.email.clone(),
            _ => None,
        }
    }

    /// Whether they are asked there.
    #[must_use]
    pub fn is_at(&self, channel: &str, place: &str) -> bool {
        match channel {
            "telegram" => self.chat().is_some_and(|chat| chat.to_string() == place),
            "email" => self.email.as_deref().is_some_and(|email| email.eq_ignore_ascii_case(place)),
            _ => false,
        }
    }
}

/// One address, in lower case: what a mailbox is called, without a name before it.
pub(crate) fn address(text: &str) -> Result<String, Bad> {
    let fine =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._%+-".contains(&b));
    match text.split_once('@') {
        Some((local, domain)) if fine(local) && fine(domain) && domain.contains('.') => Ok(text.to_lowercase()),
        Some(_) | None => Err(Bad::expected("an address such as `you@example.com`", text)),
    }
}

const KEYS: [&str; 6] = ["name", "telegram", "chat", "email", "notices", "notices_over"];

impl Setting for Person {
    const WHAT: &'static str = "a map with name, telegram, chat, email and notices";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let (mut name, mut telegram, mut chat, mut email) = (None, None, None, None);
        let (mut notices, mut notices_over) = (NoticeChoice::Digest, None);
        for (key, value) in entries {
            let read = match key.text.as_str() {
                "name" => text(value).and_then(|text| {
                    let bad = |why: sluice_core::ids::NameError| {
                        Bad::expected("a person's name", &text).hint(why.to_string())
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
                other => {
                    let bad = Bad::new(format!("has no key `{}`: a person has {}", escape(other), KEYS.join(", ")));
                    let close = closest(other, KEYS).map(|close| format!("did you mean `{close}`?"));
                    return Err(Bad { hint: close, ..bad }.at(key.place));
                }
            };
            read.map_err(|bad| Bad { message: format!("{}: {}", key.text, bad.message), ..bad }.at(value.place))?;
        }
        let name = name.ok_or_else(|| Bad::new("must have a `name`"))?;
        if chat.is_some() && telegram.is_none() {
            return Err(Bad::new("names a chat but no `telegram` user")
                .hint("anyone in the chat could answer; name the user who may"));
        }
        let has_channel = match notices_over {
            Some(NoticeChannel::Telegram) => telegram.is_some(),
            Some(NoticeChannel::Email) => email.is_some(),
            None => true,
        };
        if !has_channel {
            return Err(Bad::new("names a channel in `notices_over` at which this person has no address"));
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

fn text(node: &Node) -> Result<String, Bad> {
    match &node.kind {
        Kind::Text(text) => Ok(text.clone()),
        _ => Err(Bad::new(format!("must be a text, not {}", node.noun()))),
    }
}

fn number(node: &Node) -> Result<i64, Bad> {
    match &node.kind {
        Kind::Integer(number) => Ok(*number),
        Kind::Text(text) => text.parse().map_err(|_| Bad::expected("a number", text)),
        _ => Err(Bad::new(format!("must be a number, not {}", node.noun()))),
    }
}

impl Setting for Targets {
    const WHAT: &'static str = "a list such as `[telegram:123456, email:you@example.com]`, or `any`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        if text == "any" {
            return Ok(Self::Any);
        }
        text.split(',').map(|item| target(item.trim())).collect::<Result<_, _>>().map(Self::These)
    }

    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        match &node.kind {
            Kind::Text(text) => Self::from_text(text, base),
            Kind::List(items) => {
                let read = |item: &Node| text(item).and_then(|text| target(&text)).map_err(|bad| bad.at(item.place));
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

fn target(text: &str) -> Result<(String, String), Bad> {
    match text.split_once(':') {
        Some(("telegram", chat)) if chat.parse::<i64>().is_ok() => Ok(("telegram".into(), chat.into())),
        Some(("email", to)) => Ok(("email".into(), address(to)?)),
        Some(_) | None => Err(Bad::expected("`telegram:` and a number, or `email:` and an address", text)),
    }
}
