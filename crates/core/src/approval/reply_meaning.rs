//! What a reply means for the approval request it answers: the menu, a choice or a batch; and the words that freeze.
//!
//! Takes the words of a person and the form of the request; gives what they mean. Promise: as strict as the menu.
//! Only the exact form of an answer counts, a batch is never approved without saying how much of it, and an
//! unclear reply decides nothing.

use super::card;
use super::mail::ReplyRemainder;
use super::reply::{self, ApprovalReply, ReplyParseError};

/// The form of answer that an approval request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReplyForm<'a> {
    /// One action: the six lines of the menu.
    Menu,
    /// A request with a choice.
    Choice(&'a [String]),
    /// Several writes at once.
    Batch {
        /// How many there are.
        items: u32,
    },
}

/// What a reply means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyMeaning {
    /// A line of the menu.
    Menu(ApprovalReply),
    /// One of the choices, by its letter; or words of their own.
    Choice(String),
    /// All writes of a batch, if there are still so many.
    All {
        /// How many writes the person saw.
        seen: u32,
    },
    /// The first writes of a batch, up to this number.
    First(u32),
    /// A freeze.
    Freeze(FreezeScope),
}

/// How much is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeScope {
    /// The agent that asks.
    Agent,
    /// Everything.
    All,
}

/// The most choices a request can offer: one letter each.
pub const MOST_CHOICES: usize = 26;

/// Reads a reply to a request of this form.
///
/// # Errors
/// When it is not exactly one of its answers.
pub fn read(text: &str, form: ExpectedReplyForm<'_>) -> Result<ReplyMeaning, ReplyParseError> {
    if let Some(stop) = parse_freeze(text) {
        return Ok(ReplyMeaning::Freeze(stop));
    }
    match form {
        ExpectedReplyForm::Menu => reply::parse(text).map(ReplyMeaning::Menu),
        ExpectedReplyForm::Choice(options) => choice(text, options),
        ExpectedReplyForm::Batch { items } => batch(text, items),
    }
}

/// How a reply was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyInterpretation {
    /// It is a complete answer.
    Answer(ReplyMeaning),
    /// It is an answer with a text of which something may be missing. The person has to confirm what was
    /// understood before it counts.
    ToConfirm(ReplyMeaning),
}

/// Reads a reply of which `text` was understood and `rest` was left over.
///
/// # Errors
/// When it is not exactly one answer, or more was written than the answer.
pub fn interpret_reply(
    text: &str,
    rest: ReplyRemainder,
    form: ExpectedReplyForm<'_>,
) -> Result<ReplyInterpretation, ReplyParseError> {
    let meaning = read(text, form)?;
    match &meaning {
        ReplyMeaning::Freeze(_) | ReplyMeaning::Menu(ApprovalReply::Deny(_)) => {
            Ok(ReplyInterpretation::Answer(meaning))
        }
        _ if carries_text(&meaning) && !rest.is_certainly_complete() => Ok(ReplyInterpretation::ToConfirm(meaning)),
        _ if rest == ReplyRemainder::Doubtful => Err(ReplyParseError::MoreText),
        _ => Ok(ReplyInterpretation::Answer(meaning)),
    }
}

/// Whether an answer contains words of the person that have an effect.
fn carries_text(meaning: &ReplyMeaning) -> bool {
    match meaning {
        ReplyMeaning::Menu(ApprovalReply::Note(_) | ApprovalReply::Amend(_)) => true,
        ReplyMeaning::Choice(words) => words.chars().count() > 1,
        ReplyMeaning::Menu(_) | ReplyMeaning::All { .. } | ReplyMeaning::First(_) | ReplyMeaning::Freeze(_) => false,
    }
}

/// The word that confirms what was understood.
pub const CONFIRM: &str = "confirm";

/// Whether a person confirms what was understood: with that one word.
#[must_use]
pub fn is_confirmation(text: &str, rest: ReplyRemainder) -> bool {
    text.trim().eq_ignore_ascii_case(CONFIRM) && rest != ReplyRemainder::Doubtful
}

/// Whether a person wants to freeze everything, whatever the request was.
#[must_use]
pub fn parse_freeze(text: &str) -> Option<FreezeScope> {
    // Text below it does not prevent a freeze.
    let first = text.trim().split("\n\n").next().unwrap_or_default();
    let words: Vec<String> = first.split_whitespace().map(str::to_lowercase).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["freeze"] => Some(FreezeScope::Agent),
        ["freeze", "all"] => Some(FreezeScope::All),
        _ => None,
    }
}

fn choice(text: &str, options: &[String]) -> Result<ReplyMeaning, ReplyParseError> {
    let word = text.trim();
    let mut letters = word.chars();
    if let (Some(letter), None) = (letters.next(), letters.next())
        && letter.is_ascii_alphabetic()
    {
        let letter = letter.to_ascii_uppercase();
        let place = (u32::from(letter) - u32::from('A')) as usize;
        return if place < options.len() {
            Ok(ReplyMeaning::Choice(letter.to_string()))
        } else {
            Err(ReplyParseError::NoCode)
        };
    }
    match reply::parse(text)? {
        // An answer in the person's own words, after a 4 as in the menu.
        ApprovalReply::Note(words) => Ok(ReplyMeaning::Choice(words)),
        ApprovalReply::Deny(reason) => Ok(ReplyMeaning::Menu(ApprovalReply::Deny(reason))),
        // A plain approval is no answer to a choice, and a standing one even less.
        ApprovalReply::Once | ApprovalReply::Session | ApprovalReply::Amend(_) | ApprovalReply::Always => {
            Err(ReplyParseError::NoCode)
        }
    }
}

fn batch(text: &str, items: u32) -> Result<ReplyMeaning, ReplyParseError> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let number = |word: &str| {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        word.parse::<u32>().ok().filter(|_| digits)
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Err(ReplyParseError::Empty),
        ["none"] => Ok(ReplyMeaning::Menu(ApprovalReply::Deny(None))),
        ["3", ..] => reply::parse(text).map(ReplyMeaning::Menu),
        ["all", seen] => number(seen).map(|seen| ReplyMeaning::All { seen }).ok_or(ReplyParseError::NoCode),
        ["first", n] => match number(n) {
            Some(n) if n >= 1 && n <= items => Ok(ReplyMeaning::First(n)),
            Some(_) | None => Err(ReplyParseError::NoCode),
        },
        _ => Err(ReplyParseError::NoCode),
    }
}

/// The answers that are possible, in words for people.
#[must_use]
pub fn menu(form: ExpectedReplyForm<'_>) -> String {
    match form {
        ExpectedReplyForm::Menu => reply::MENU.to_owned(),
        ExpectedReplyForm::Choice(options) => {
            let lines = options
                .iter()
                .zip('A'..='Z')
                .map(|(option, letter)| format!("{letter}  {}\n", card::escape_invisible(option)));
            format!("{}3  No answer\n4  An answer of your own (reply: 4 your answer)", lines.collect::<String>())
        }
        ExpectedReplyForm::Batch { items } => format!(
            "all {items}  Allow all {items}\nfirst N  Allow the first N, deny the rest (reply: first 10)\n3  Deny all"
        ),
    }
}

/// The text for a person whose reply was unclear: nothing happened, why, and which answers are possible.
#[must_use]
pub fn explain_unclear_reply(why: ReplyParseError, form: ExpectedReplyForm<'_>) -> String {
    match form {
        ExpectedReplyForm::Menu => why.explain(),
        ExpectedReplyForm::Choice(_) | ExpectedReplyForm::Batch { .. } => {
            let menu = menu(form);
            format!(
                "Nothing was decided: the reply was not clear. The approval is still open. Please reply with one of \
                 these:\n\n{menu}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> Vec<String> {
        ["Use React", "Use Vue"].map(String::from).to_vec()
    }

    #[test]
    fn a_choice_is_a_letter_or_words_behind_a_four() {
        let options = options();
        let read = |text: &str| read(text, ExpectedReplyForm::Choice(&options));
        assert_eq!(read(" b "), Ok(ReplyMeaning::Choice("B".into())));
        assert_eq!(read("A"), Ok(ReplyMeaning::Choice("A".into())));
        assert_eq!(read("4 Use neither"), Ok(ReplyMeaning::Choice("Use neither".into())));
        assert_eq!(read("3"), Ok(ReplyMeaning::Menu(ApprovalReply::Deny(None))));
        assert_eq!(read("3 ask Bob"), Ok(ReplyMeaning::Menu(ApprovalReply::Deny(Some("ask Bob".into())))));
        for bad in ["C", "1", "2", "6", "5 x", "A?", "A B", "Use Vue", "", "é", "Ａ", "4"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_batch_is_answered_with_how_much_of_it() {
        let read = |text: &str| read(text, ExpectedReplyForm::Batch { items: 7 });
        assert_eq!(read("all 7"), Ok(ReplyMeaning::All { seen: 7 }));
        assert_eq!(
            read("ALL  6"),
            Ok(ReplyMeaning::All { seen: 6 }),
            "whether that still fits is the store's question"
        );
        assert_eq!(read("first 3"), Ok(ReplyMeaning::First(3)));
        assert_eq!(read("3"), Ok(ReplyMeaning::Menu(ApprovalReply::Deny(None))));
        assert_eq!(read("3  too many"), Ok(ReplyMeaning::Menu(ApprovalReply::Deny(Some("too many".into())))));
        assert_eq!(read("none"), Ok(ReplyMeaning::Menu(ApprovalReply::Deny(None))));
        for bad in
            ["1", "2", "6", "all", "first", "first 0", "first 8", "first -1", "first +3", "first 3 or so", "all 7!", ""]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn freezing_needs_exactly_its_words() {
        for form in [ExpectedReplyForm::Menu, ExpectedReplyForm::Batch { items: 2 }] {
            assert_eq!(read("Freeze", form), Ok(ReplyMeaning::Freeze(FreezeScope::Agent)));
            assert_eq!(read(" freeze  all\n", form), Ok(ReplyMeaning::Freeze(FreezeScope::All)));
            for bad in ["freeze!", "do freeze", "freeze everything", "unfreeze"] {
                assert!(read(bad, form).is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_text_of_which_something_may_be_missing_is_confirmed_first() {
        let (options, all) = (
            options(),
            [ReplyRemainder::Nothing, ReplyRemainder::OwnLetter, ReplyRemainder::Usual, ReplyRemainder::Doubtful],
        );
        for (text, form) in [
            ("4 x", ExpectedReplyForm::Menu),
            ("5 x", ExpectedReplyForm::Menu),
            ("4 neither", ExpectedReplyForm::Choice(&options)),
        ] {
            let heard = |rest| interpret_reply(text, rest, form).unwrap();
            assert_eq!(
                all.map(|rest| matches!(heard(rest), ReplyInterpretation::Answer(_))),
                [true, true, false, false],
                "{text}"
            );
        }
        for (text, form) in
            [("1", ExpectedReplyForm::Menu), ("6", ExpectedReplyForm::Menu), ("b", ExpectedReplyForm::Choice(&options))]
        {
            assert_eq!(all.map(|rest| interpret_reply(text, rest, form).is_ok()), [true, true, true, false], "{text}");
        }
        for (text, form) in [
            ("3", ExpectedReplyForm::Menu),
            ("3 no", ExpectedReplyForm::Menu),
            ("freeze", ExpectedReplyForm::Batch { items: 2 }),
        ] {
            assert!(
                all.iter().all(|rest| matches!(interpret_reply(text, *rest, form), Ok(ReplyInterpretation::Answer(_)))),
                "{text}"
            );
        }
        assert_eq!(
            interpret_reply("freeze all\n\nnow!", ReplyRemainder::Doubtful, ExpectedReplyForm::Menu),
            Ok(ReplyInterpretation::Answer(ReplyMeaning::Freeze(FreezeScope::All)))
        );
        assert!(
            is_confirmation(" Confirm\n", ReplyRemainder::Usual)
                && !is_confirmation("confirm", ReplyRemainder::Doubtful)
        );
        assert!(
            !is_confirmation("confirm 1", ReplyRemainder::Nothing) && !is_confirmation("1", ReplyRemainder::Nothing)
        );
    }

    #[test]
    fn every_form_shows_what_it_takes() {
        assert_eq!(menu(ExpectedReplyForm::Menu), reply::MENU);
        let options = options();
        insta::assert_snapshot!(menu(ExpectedReplyForm::Choice(&options)), @r"
        A  Use React
        B  Use Vue
        3  No answer
        4  An answer of your own (reply: 4 your answer)
        ");
        let sly = ["Vue\n1  Allow once".to_owned()];
        assert!(
            menu(ExpectedReplyForm::Choice(&sly)).starts_with("A  Vue\\n1  Allow once\n3  No answer"),
            "one line, as it is"
        );
        assert!(menu(ExpectedReplyForm::Batch { items: 7 }).starts_with("all 7  Allow all 7\n"));
        assert!(
            explain_unclear_reply(ReplyParseError::Empty, ExpectedReplyForm::Batch { items: 7 })
                .contains("Nothing was decided")
        );
    }

    proptest! {
        #[test]
        fn nothing_allows_a_batch_but_the_exact_form(text in "\\PC{0,4}(all|first|1|yes|)[ ]{0,2}[0-9a-z]{0,3}\\PC{0,2}") {
            if let Ok(ReplyMeaning::All { .. } | ReplyMeaning::First(_)) = read(&text, ExpectedReplyForm::Batch { items: 50 }) {
                let words: Vec<&str> = text.split_whitespace().collect();
                prop_assert_eq!(words.len(), 2);
                prop_assert!(["all", "first"].contains(&words[0].to_lowercase().as_str()));
            }
        }
    }
}
