//! Separates what a person wrote in an e-mail from what their mail program added.
//!
//! Takes the plain text of an e-mail; gives everything up to the quote or signature, and a class for the rest.
//! Promise: text that was quoted, forwarded or added by a program is never taken for the person's own, whatever program
//! and language wrote its introduction; and nothing is dropped silently: the rest is classified as the message we sent,
//! as what programs usually add, or as something that the person may have written.

/// What introduces a signature of a telephone or program, at the start of a line, in lower case.
const FOOTERS: [&str; 24] = [
    "sent from my",
    "sent from outlook",
    "sent from mail for windows",
    "sent from yahoo",
    "sent with",
    "sent via",
    "get outlook for",
    "von meinem",
    "gesendet von",
    "gesendet mit",
    "diese nachricht wurde von",
    "envoyé de mon",
    "envoyé depuis",
    "envoyé à partir",
    "enviado desde",
    "enviado do meu",
    "enviado de mi",
    "inviato da",
    "verstuurd vanaf",
    "verzonden vanaf",
    "skickat från",
    "sendt fra",
    "wysłano z",
    "отправлено с",
];

/// Names of the sender line in a quoted header: one such line is enough to recognise a header.
const SENDERS: [&str; 12] =
    ["from", "von", "de", "da", "van", "från", "fra", "od", "от", "发件人", "差出人", "보낸 사람"];

/// Names of the lines of a quoted header.
const HEADS: [&str; 37] = [
    "from",
    "sent",
    "to",
    "cc",
    "date",
    "subject",
    "reply-to",
    "von",
    "gesendet",
    "an",
    "betreff",
    "datum",
    "de",
    "envoyé",
    "à",
    "objet",
    "para",
    "enviado",
    "asunto",
    "assunto",
    "da",
    "inviato",
    "oggetto",
    "van",
    "verzonden",
    "onderwerp",
    "från",
    "fra",
    "od",
    "wysłano",
    "temat",
    "от",
    "отправлено",
    "тема",
    "发件人",
    "差出人",
    "보낸 사람",
];

/// Words of "… wrote:", in lower case: a line that ends with a colon and has one introduces a quote.
const WROTE: [&str; 30] = [
    "wrote",
    "schrieb",
    "a écrit",
    "écrivait",
    "escribió",
    "ha escrito",
    "ha scritto",
    "scriveva",
    "escreveu",
    "schreef",
    "skrev",
    "skrifaði",
    "kirjoitti",
    "napisał",
    "pisze",
    "napsal",
    "napísal",
    "írta",
    "a scris",
    "написа",
    "пише",
    "yazdı",
    "έγραψε",
    "כתב",
    "كتب",
    "写道",
    "寫道",
    "書きました",
    "のメール",
    "님이 작성",
];

/// Lines across which a program breaks "On …, … wrote:".
const BROKEN_OVER: usize = 3;
/// Most lines of a signature.
const LONGEST_SIGNATURE: usize = 10;
/// What every message about an approval request contains, so that a quote of one is recognised.
const LETTER_MARK: &str = "appr_";

/// What a person wrote, and what else is in the e-mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyText {
    /// Everything before a quote or signature, without blank lines around it.
    pub words: String,
    /// What follows it.
    pub rest: ReplyRemainder,
}

/// What an e-mail holds beside the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyRemainder {
    /// Nothing at all.
    Nothing,
    /// The message that is answered, as mail programs quote it. Nothing else.
    OwnLetter,
    /// What mail programs add: a signature, a quote. Nothing that looks like an answer, and nothing certainly ours.
    Usual,
    /// Something that the person may have written.
    Doubtful,
}

impl ReplyRemainder {
    /// Whether the words are certainly all that the person wrote.
    #[must_use]
    pub const fn is_certainly_complete(self) -> bool {
        matches!(self, Self::Nothing | Self::OwnLetter)
    }

    /// The word on the wire between processes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::OwnLetter => "own_letter",
            Self::Usual => "usual",
            Self::Doubtful => "doubtful",
        }
    }

    /// Reads the word back. An unknown word is doubtful.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let known = [Self::Nothing, Self::OwnLetter, Self::Usual].into_iter().find(|rest| rest.as_str() == word);
        known.unwrap_or(Self::Doubtful)
    }
}

/// Divides an e-mail into the words of its sender and the rest.
#[must_use]
pub fn read_reply(text: &str) -> ReplyText {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let begins = (0..lines.len()).find(|n| foreign(lines.get(*n..).unwrap_or_default()).is_some());
    let end = begins.unwrap_or(lines.len());
    let (own, rest) = lines.split_at(end);
    let own: Vec<&str> = own.iter().map(|line| line.trim_end()).collect();
    ReplyText { words: own.join("\n").trim().to_owned(), rest: rest_of(rest) }
}

/// What begins at a line that is not the person's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NonReplyLine {
    /// One quoted line.
    Quoted,
    /// This many lines that introduce a quote.
    Introduction(usize),
    /// A mark after which a signature stands.
    SignatureMark,
    /// A line that a telephone or program adds.
    Footer,
    /// Everything from here on is a quoted e-mail.
    WholeMail,
    /// A line of dashes or the like, which says nothing by itself.
    Rule,
}

/// What begins at the first of these lines, if that is not the person's own.
fn foreign(lines: &[&str]) -> Option<NonReplyLine> {
    let plain = lines.first()?.trim();
    if plain.is_empty() {
        return None;
    }
    let low = plain.to_lowercase();
    if plain.starts_with(['>', '|', '＞']) {
        return Some(NonReplyLine::Quoted);
    }
    if ["--", "—", "––", "__"].contains(&plain) {
        return Some(NonReplyLine::SignatureMark);
    }
    if FOOTERS.iter().any(|footer| low.starts_with(footer)) {
        return Some(NonReplyLine::Footer);
    }
    if low.starts_with("begin forwarded message") || low.starts_with("anfang der weitergeleiteten nachricht") {
        return Some(NonReplyLine::WholeMail);
    }
    if is_titled_rule(plain) || begins_head(lines) {
        return Some(NonReplyLine::WholeMail);
    }
    if let Some(length) = introduction(lines) {
        return Some(NonReplyLine::Introduction(length));
    }
    is_bare_rule(plain).then_some(NonReplyLine::Rule)
}

/// What the lines after the words are.
fn rest_of(lines: &[&str]) -> ReplyRemainder {
    let text = lines.join("\n");
    if text.trim().is_empty() {
        return ReplyRemainder::Nothing;
    }
    let (mut left, mut only_quote, mut shortened) = (lines, true, false);
    while let Some(line) = left.first() {
        let take = match foreign(left) {
            None if line.trim().is_empty() => 1,
            // Text follows below a quote or a signature.
            None => return ReplyRemainder::Doubtful,
            Some(NonReplyLine::Quoted) => 1,
            Some(NonReplyLine::Introduction(length)) => {
                shortened |= is_shortened_introduction(line);
                let after = left.get(length..).unwrap_or_default();
                let next = after.iter().position(|line| !line.trim().is_empty());
                // Some programs quote without a mark: then everything below the introduction is the quote.
                let unmarked = next.is_some_and(|next| foreign(after.get(next..).unwrap_or_default()).is_none());
                if unmarked { left.len() } else { length }
            }
            Some(NonReplyLine::WholeMail) => left.len(),
            Some(NonReplyLine::SignatureMark) => {
                only_quote = false;
                let rest = left.get(1..).unwrap_or_default();
                let length = (0..rest.len()).find(|n| foreign(rest.get(*n..).unwrap_or_default()).is_some());
                let length = length.unwrap_or(rest.len());
                let written = rest.iter().take(length).filter(|line| !line.trim().is_empty()).count();
                if written > LONGEST_SIGNATURE {
                    return ReplyRemainder::Doubtful;
                }
                length + 1
            }
            Some(NonReplyLine::Footer) => {
                only_quote = false;
                1
            }
            Some(NonReplyLine::Rule) => {
                let after = left.get(1..).unwrap_or_default();
                let next = after.iter().position(|line| !line.trim().is_empty());
                match next.map(|next| foreign(after.get(next..).unwrap_or_default())) {
                    None | Some(Some(_)) => {
                        only_quote = only_quote && next.is_some();
                        1
                    }
                    Some(None) => return ReplyRemainder::Doubtful,
                }
            }
        };
        left = left.get(take..).unwrap_or_default();
    }
    let ours = text.contains(LETTER_MARK) || shortened;
    if only_quote && ours { ReplyRemainder::OwnLetter } else { ReplyRemainder::Usual }
}

/// A line of nothing but dashes, underscores, equals signs or stars.
fn is_bare_rule(line: &str) -> bool {
    line.chars().count() >= 3 && line.chars().all(|c| "-_=* –—".contains(c))
}

/// Dashes or the like on both sides of words: `-----Original Message-----`.
fn is_titled_rule(line: &str) -> bool {
    ['-', '_', '=', '*'].into_iter().any(|mark| {
        let marks = |text: &str| text.chars().take_while(|c| *c == mark).count();
        let back: String = line.chars().rev().collect();
        let words = line.trim_matches(mark);
        marks(line) >= 3 && marks(&back) >= 3 && words.chars().any(char::is_alphabetic)
    })
}

/// The name of a header line such as `From: …`, also between stars as some programs print bold.
fn head_name(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches('*');
    let (name, _) = line.split_once([':', '：'])?;
    let name = name.trim_end_matches('*').trim().to_lowercase();
    HEADS.contains(&name.as_str()).then_some(name)
}

/// Whether the header of a quoted e-mail begins here: its sender, or two of its lines.
fn begins_head(lines: &[&str]) -> bool {
    let name = |n: usize| lines.get(n).and_then(|line| head_name(line));
    name(0).is_some_and(|first| SENDERS.contains(&first.as_str()) || name(1).is_some())
}

/// How many lines `On …, … wrote:` takes if it begins here, on one line or broken over a few.
fn introduction(lines: &[&str]) -> Option<usize> {
    if lines.first().is_some_and(|line| is_shortened_introduction(line)) {
        return Some(1);
    }
    let mut joined = String::new();
    for (n, line) in lines.iter().take(BROKEN_OVER).enumerate() {
        let line = line.trim();
        // It may go on after its first line, but not over a blank one.
        if line.is_empty() {
            return None;
        }
        joined.push(' ');
        joined.push_str(&line.to_lowercase());
        let end = joined.trim_end_matches(['>', ' ', '\u{a0}']);
        let colon = end.ends_with(':') || end.ends_with('：');
        let dated = joined.chars().any(|c| c.is_ascii_digit()) || joined.contains('@');
        let says_so = WROTE.iter().any(|word| joined.contains(word)) || is_quoted_below(lines, n + 1);
        if colon && dated && says_so && (n > 0 || begins_like_introduction(line)) {
            return Some(n + 1);
        }
        // A first line that could be an answer is looked at alone: `4 he wrote:` is a person's note.
        if n == 0 && !begins_like_introduction(line) {
            return None;
        }
    }
    None
}

/// Whether the first line from here on that is not blank is quoted.
fn is_quoted_below(lines: &[&str], from: usize) -> bool {
    let mut below = lines.iter().skip(from).map(|line| line.trim()).filter(|line| !line.is_empty());
    below.next().is_some_and(|line| line.starts_with('>'))
}

/// `On Tue...`, as the approval gate's own description shortens it: it holds nothing that could be an answer.
fn is_shortened_introduction(line: &str) -> bool {
    let line = line.trim();
    let short = line.strip_suffix("...").or_else(|| line.strip_suffix('…'));
    short.and_then(|line| line.strip_prefix("On ")).is_some_and(|day| {
        day.chars().count() <= 10 && !day.is_empty() && day.chars().all(|c| c.is_alphanumeric() || ", ".contains(c))
    })
}

/// Whether a line can be the first of an introduction: it does not begin as an answer does.
fn begins_like_introduction(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    !["1", "2", "3", "4", "5", "6"].contains(&first) || line.contains('@')
}

#[cfg(test)]
mod tests;
