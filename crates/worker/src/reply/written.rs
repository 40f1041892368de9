//! The text of a mail, as far as it can be an answer.
//!
//! Takes a parsed mail; gives the words of its sender, and what else is in it. Promise: a text in two versions (plain
//! and HTML) is accepted completely only where both say the same; lines that a program wrapped for transport are joined
//! again; text in a second part of the mail is not dropped silently.

use mail_parser::decoders::html::html_to_text;
use mail_parser::{Encoding, Message, MimeHeaders as _, PartType};
use sluice_core::approval::mail::{ReplyRemainder, ReplyText, read_reply};

/// Most characters of a person's words that are given: more than any answer has.
const LONGEST_WORDS: usize = 8_192;
/// Character sets in which a digit is what it looks like.
const CHARSETS: [&str; 9] = ["utf-8", "us-ascii", "koi8-r", "gb18030", "gbk", "gb2312", "big5", "shift_jis", "euc-kr"];
/// The same, by the prefix of their names.
const FAMILIES: [&str; 2] = ["iso-8859-", "windows-125"];
/// HTML elements that begin or end a line.
const BLOCKS: [&str; 18] = [
    "<div",
    "</div",
    "<p",
    "</p",
    "<blockquote",
    "</blockquote",
    "<hr",
    "<tr",
    "</tr",
    "<li",
    "</li",
    "<ul",
    "</ul",
    "<h1",
    "<h2",
    "<h3",
    "<pre",
    "</pre",
];
/// HTML for text that its sender crossed out.
const CROSSED_OUT: [&str; 6] = ["<s>", "<s ", "<strike", "<del>", "<del ", "line-through"];

/// The text that was read.
pub(super) struct WrittenReplyText {
    /// The whole plain text.
    pub whole: String,
    /// The words of the sender.
    pub words: String,
    /// What else the mail holds.
    pub rest: ReplyRemainder,
    /// Whether there was a plain text at all.
    pub is_there: bool,
    /// Whether it was written as it reads: in a known character set, not encoded.
    pub is_exact: bool,
}

impl WrittenReplyText {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let first = message.text_bodies().next().filter(|part| matches!(part.body, PartType::Text(_)));
        let Some(part) = first else {
            let (whole, words) = (String::new(), String::new());
            return Self { whole, words, rest: ReplyRemainder::Doubtful, is_there: false, is_exact: false };
        };
        let kind = |name: &str| part.content_type().and_then(|kind| kind.attribute(name)).map(str::to_ascii_lowercase);
        let mut whole = part.text_contents().unwrap_or_default().to_owned();
        if kind("format").as_deref() == Some("flowed") {
            whole = joined(&whole, kind("delsp").as_deref() == Some("yes"));
        }
        let mut read = read_reply(&whole);
        // A sender who inserts a picture continues in the next part.
        let texts = message.text_bodies().filter(|part| matches!(part.body, PartType::Text(_) | PartType::Html(_)));
        if texts.count() > 1 {
            read.rest = ReplyRemainder::Doubtful;
        }
        let rich = message.html_bodies().find(|part| matches!(part.body, PartType::Html(_)));
        if let Some(html) = rich.and_then(|part| part.text_contents()) {
            compare(&mut read, html);
        }
        let words: String = read.words.chars().take(LONGEST_WORDS).collect();
        let charset = kind("charset").unwrap_or_else(|| "us-ascii".into());
        let known = CHARSETS.contains(&charset.as_str()) || FAMILIES.iter().any(|family| charset.starts_with(family));
        let is_exact = known
            && !part.is_encoding_problem
            && part.encoding != Encoding::Base64
            && !words.contains(char::REPLACEMENT_CHARACTER);
        Self { whole, words, rest: read.rest, is_there: true, is_exact }
    }
}

/// Compares the plain text with the HTML of the same mail. Where only line breaks differ, those of the HTML count,
/// because the sender has seen them; where more differs, the sender is asked.
fn compare(plain: &mut ReplyText, html: &str) {
    let low = html.to_ascii_lowercase();
    let rich = read_reply(&lines_of(html));
    let same = squeezed(&plain.words) == squeezed(&rich.words);
    let code = |text: &str| text.split_whitespace().next().map(str::to_owned);
    if CROSSED_OUT.iter().any(|mark| low.contains(mark)) || code(&plain.words) != code(&rich.words) {
        plain.rest = ReplyRemainder::Doubtful;
    } else if !same {
        plain.rest = worse(plain.rest);
    } else if broken(&plain.words) != broken(&rich.words) {
        plain.words = rich.words;
        plain.rest = worse(plain.rest);
    }
}

/// At least the rest that programs usually add: then a text has to be confirmed.
fn worse(rest: ReplyRemainder) -> ReplyRemainder {
    match rest {
        ReplyRemainder::Nothing | ReplyRemainder::OwnLetter | ReplyRemainder::Usual => ReplyRemainder::Usual,
        ReplyRemainder::Doubtful => ReplyRemainder::Doubtful,
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of a text, without blank ones.
fn broken(text: &str) -> Vec<String> {
    text.lines().map(squeezed).filter(|line| !line.is_empty()).collect()
}

/// HTML as text, with the lines that a reader sees.
fn lines_of(html: &str) -> String {
    let mut marked = String::with_capacity(html.len());
    let low = html.to_ascii_lowercase();
    let mut from = 0;
    for (at, _) in low.match_indices('<') {
        let rest = low.get(at..).unwrap_or_default();
        let is_block = BLOCKS.iter().any(|block| {
            let after = rest.strip_prefix(block).and_then(|after| after.chars().next());
            after.is_some_and(|c| c == '>' || c == ' ' || c == '/' || c == '\n')
        });
        if is_block {
            marked.push_str(html.get(from..at).unwrap_or_default());
            marked.push_str("<br>");
            from = at;
        }
    }
    marked.push_str(html.get(from..).unwrap_or_default());
    html_to_text(&marked)
}

/// Joins the lines of a text in `format=flowed` (RFC 3676) as they were before they were wrapped for transport.
fn joined(text: &str, delete_space: bool) -> String {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.replace("\r\n", "\n").split('\n') {
        let depth = line.chars().take_while(|c| *c == '>').count();
        let line = line.trim_start_matches('>');
        // One blank was put before a line that could be mistaken for something else.
        let line = line.strip_prefix(' ').unwrap_or(line);
        match lines.last_mut() {
            Some((before, last)) if goes_on && *before == depth => {
                if delete_space {
                    last.pop();
                }
                last.push_str(line);
            }
            _ => lines.push((depth, line.to_owned())),
        }
        goes_on = line.ends_with(' ') && line != "-- ";
    }
    let mark = |depth: usize| if depth == 0 { String::new() } else { format!("{} ", ">".repeat(depth)) };
    lines.into_iter().map(|(depth, line)| mark(depth) + &line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail_parser::MessageParser;

    fn text(mail: &str) -> WrittenReplyText {
        let mail = mail.replace('\n', "\r\n");
        WrittenReplyText::of(&MessageParser::default().parse(mail.as_bytes()).unwrap())
    }

    /// A mail with a plain and an HTML version.
    fn twice(plain: &str, html: &str) -> WrittenReplyText {
        text(&format!(
            "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=x\n\n--x\n\
             Content-Type: text/plain; charset=utf-8\n\n{plain}\n--x\nContent-Type: text/html; charset=utf-8\n\n{html}\n\
             --x--\n"
        ))
    }

    #[test]
    fn a_plain_text_is_exact_and_all_of_it_counts() {
        let text = text("From: a@b.example\nContent-Type: text/plain; charset=UTF-8\n\n1\n\n> appr_2\n");
        assert!(text.is_exact && text.is_there && text.words == "1" && text.rest == ReplyRemainder::OwnLetter);
    }

    #[test]
    fn a_text_that_came_packed_or_in_a_strange_character_set_is_not_exact() {
        for mail in [
            "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\nMQ==\n",
            "Content-Type: text/plain; charset=utf-7\n\n+ADE-\n",
            "Content-Type: text/plain; charset=utf-16\n\n1\n",
            "Content-Type: text/plain; charset=x-nobody\n\n1\n",
        ] {
            assert!(!text(&format!("From: a@b.example\n{mail}")).is_exact, "{mail}");
        }
        assert!(!text("From: a@b.example\nContent-Type: text/html\n\n<p>1</p>\n").is_there);
    }

    #[test]
    fn what_is_inside_a_forwarded_mail_is_not_the_text() {
        let mail = "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\
                    Content-Type: message/rfc822\n\nFrom: c@d.example\nContent-Type: text/plain\n\n1\n\n--x--\n";
        assert!(!text(mail).is_there);
    }

    #[test]
    fn lines_that_were_broken_for_the_way_are_joined() {
        let flowed = |kind: &str, body: &str| {
            text(&format!("From: a@b.example\nContent-Type: text/plain; charset=utf-8; {kind}\n\n{body}\n")).words
        };
        let broken = "5 kubectl delete pod x \n--dry-run=client";
        assert_eq!(flowed("format=flowed", broken), "5 kubectl delete pod x --dry-run=client");
        assert_eq!(flowed("format=flowed; delsp=yes", "5 rm \n -rf x"), "5 rm-rf x");
        assert_eq!(flowed("format=flowed", "5 a\n b\n  c"), "5 a\nb\n c", "a blank was put in front for the way");
        assert_eq!(flowed("format=fixed", broken), "5 kubectl delete pod x\n--dry-run=client");
        assert_eq!(joined("4 a \n> b \n> c\n-- \nd", false), "4 a \n> b c\n-- \nd");
        let soft = "From: a@b.example\nContent-Type: text/plain; charset=utf-8\n\
                    Content-Transfer-Encoding: quoted-printable\n\n5 kubectl delete pod x =\n--dry-run=3Dclient\n";
        assert_eq!(text(soft).words, "5 kubectl delete pod x --dry-run=client");
    }

    #[test]
    fn a_mail_composed_twice_is_heard_whole_only_where_both_say_the_same() {
        let quote = "\n\nOn Tue, 5 Nov 2024 at 10:02, Gate <gate@example.test> wrote:\n> appr_01";
        let rich_quote = "<div class=\"gmail_quote\"><div>On Tue, 5 Nov 2024 at 10:02, Gate &lt;gate@example.test&gt; \
                          wrote:<br></div><blockquote>appr_01</blockquote></div>";
        let both = |plain: &str, html: &str| twice(&format!("{plain}{quote}"), &format!("{html}{rich_quote}"));
        let same = both("5 kubectl get pod x\n--watch", "<div>5 kubectl get pod x</div><div>--watch<br></div>");
        assert_eq!((same.words.as_str(), same.rest), ("5 kubectl get pod x\n--watch", ReplyRemainder::OwnLetter));
        let wrapped =
            both("5 kubectl delete pod x\n--dry-run=client", "<div>5 kubectl delete pod x --dry-run=client</div>");
        assert_eq!(
            (wrapped.words.as_str(), wrapped.rest),
            ("5 kubectl delete pod x --dry-run=client", ReplyRemainder::Usual)
        );
        assert_eq!(both("5 rm -r x", "<div>5 rm -r <b>y</b></div>").rest, ReplyRemainder::Usual);
        assert_eq!(both("4 do it", "<div>4 <s>do</s> it</div>").rest, ReplyRemainder::Doubtful);
        assert_eq!(both("1", "<div>3</div>").rest, ReplyRemainder::Doubtful);
        assert_eq!(both("1", "<div dir=\"ltr\">1</div>").rest, ReplyRemainder::OwnLetter);
        assert_eq!(both("1", "<div>1</div><p>Acme Ltd, all rights reserved</p>").rest, ReplyRemainder::Usual);
    }

    #[test]
    fn a_text_that_goes_on_in_another_part_is_not_heard_as_if_it_ended() {
        let mail = "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\
                    Content-Type: text/plain\n\n5 kubectl delete pod x\n--x\nContent-Type: text/plain\n\n--dry-run\n--x--\n";
        assert_eq!(text(mail).rest, ReplyRemainder::Doubtful);
    }
}
