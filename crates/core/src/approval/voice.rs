//! What a reply means to the question it answers: the menu, a choice, or a batch; and the words that stop everything.
//!
//! Takes the words of a person and the form of the question; gives what they mean. Promise: as strict as the menu.
//! Only the exact form of an answer counts, a batch is never approved without saying how much of it, and whatever
//! is unclear decides nothing.

use super::card;
use super::mail::Rest;
use super::reply::{self, Reply, Unclear};

/// What kind of answer a question takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// One action: the six lines of the menu.
    Menu,
    /// A question with a choice.
    Choice(&'a [String]),
    /// So many writes at once.
    Batch {
        /// How many there are.
        items: u32,
    },
}

/// What a person meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A line of the menu.
    Menu(Reply),
    /// One of the choices, by its letter; or words of their own.
    Choice(String),
    /// All writes of a batch, if there are still so many.
    All {
        /// How many they saw.
        seen: u32,
    },
    /// The first so many of a batch.
    First(u32),
    /// Stop.
    Freeze(Stop),
}

/// How much is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The agent that asks.
    Agent,
    /// Everything.
    All,
}

/// The most choices a question can offer: one letter each.
pub const MOST_CHOICES: usize = 26;

/// Reads a reply to a question of this form.
///
/// # Errors
/// When it is not exactly one of its answers.
pub fn read(text: &str, form: Form<'_>) -> Result<Meaning, Unclear> {
    if let Some(stop) = stop(text) {
        return Ok(Meaning::Freeze(stop));
    }
    match form {
        Form::Menu => reply::parse(text).map(Meaning::Menu),
        Form::Choice(options) => choice(text, options),
        Form::Batch { items } => batch(text, items),
    }
}

/// What a reply amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Understood {
    /// It is an answer.
    Answer(Meaning),
    /// It would be one, and it carries a text of which something may be missing. The person has to confirm what was
    /// understood before it counts.
    ToConfirm(Meaning),
}

/// Reads a reply of which this text was understood, with this left over.
///
/// # Errors
/// When it is not exactly one answer, or more was written than the answer.
pub fn hear(text: &str, rest: Rest, form: Form<'_>) -> Result<Understood, Unclear> {
    let meaning = read(text, form)?;
    match &meaning {
        Meaning::Freeze(_) | Meaning::Menu(Reply::Deny(_)) => Ok(Understood::Answer(meaning)),
        _ if carries_text(&meaning) && !rest.is_nothing_of_theirs() => Ok(Understood::ToConfirm(meaning)),
        _ if rest == Rest::Doubtful => Err(Unclear::MoreText),
        _ => Ok(Understood::Answer(meaning)),
    }
}

/// Whether an answer has words of the person in it that something is done with.
fn carries_text(meaning: &Meaning) -> bool {
    match meaning {
        Meaning::Menu(Reply::Note(_) | Reply::Amend(_)) => true,
        Meaning::Choice(words) => words.chars().count() > 1,
        Meaning::Menu(_) | Meaning::All { .. } | Meaning::First(_) | Meaning::Freeze(_) => false,
    }
}

/// The word that confirms what was understood.
pub const CONFIRM: &str = "confirm";

/// Whether a person confirms what they were told was understood: with that one word.
#[must_use]
pub fn is_confirmation(text: &str, rest: Rest) -> bool {
    text.trim().eq_ignore_ascii_case(CONFIRM) && rest != Rest::Doubtful
}

/// Whether somebody wants everything to stop, whatever they were asked.
#[must_use]
pub fn stop(text: &str) -> Option<Stop> {
    // Stopping is not refused for what stands below it.
    let first = text.trim().split("\n\n").next().unwrap_or_default();
    let words: Vec<String> = first.split_whitespace().map(str::to_lowercase).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["freeze"] => Some(Stop::Agent),
        ["freeze", "all"] => Some(Stop::All),
        _ => None,
    }
}

fn choice(text: &str, options: &[String]) -> Result<Meaning, Unclear> {
    let word = text.trim();
    let mut letters = word.chars();
    if let (Some(letter), None) = (letters.next(), letters.next())
        && letter.is_ascii_alphabetic()
    {
        let letter = letter.to_ascii_uppercase();
        let place = (u32::from(letter) - u32::from('A')) as usize;
        return if place < options.len() { Ok(Meaning::Choice(letter.to_string())) } else { Err(Unclear::NoCode) };
    }
    match reply::parse(text)? {
        // Words of their own, behind a 4 as in the menu.
        Reply::Note(words) => Ok(Meaning::Choice(words)),
        Reply::Deny(reason) => Ok(Meaning::Menu(Reply::Deny(reason))),
        // A plain yes is no answer to a choice, and a standing one even less.
        Reply::Once | Reply::Session | Reply::Amend(_) | Reply::Always => Err(Unclear::NoCode),
    }
}

fn batch(text: &str, items: u32) -> Result<Meaning, Unclear> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let number = |word: &str| {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        word.parse::<u32>().ok().filter(|_| digits)
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Err(Unclear::Empty),
        ["none"] => Ok(Meaning::Menu(Reply::Deny(None))),
        ["3", ..] => reply::parse(text).map(Meaning::Menu),
        ["all", seen] => number(seen).map(|seen| Meaning::All { seen }).ok_or(Unclear::NoCode),
        ["first", n] => match number(n) {
            Some(n) if n >= 1 && n <= items => Ok(Meaning::First(n)),
            Some(_) | None => Err(Unclear::NoCode),
        },
        _ => Err(Unclear::NoCode),
    }
}

/// What a person is told they can answer.
#[must_use]
pub fn menu(form: Form<'_>) -> String {
    match form {
        Form::Menu => reply::MENU.to_owned(),
        Form::Choice(options) => {
            let lines =
                options.iter().zip('A'..='Z').map(|(option, letter)| format!("{letter}  {}\n", card::visible(option)));
            format!("{}3  No answer\n4  An answer of your own (reply: 4 your answer)", lines.collect::<String>())
        }
        Form::Batch { items } => format!(
            "all {items}  Allow all {items}\nfirst N  Allow the first N, deny the rest (reply: first 10)\n3  Deny all"
        ),
    }
}

/// What a person is told whose reply was unclear: that nothing happened, why, and what can be answered.
#[must_use]
pub fn repeat(why: Unclear, form: Form<'_>) -> String {
    match form {
        Form::Menu => why.repeat(),
        Form::Choice(_) | Form::Batch { .. } => {
            let menu = menu(form);
            format!(
                "Nothing was decided: the reply was not clear. The question is still open. Please reply with one of \
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
        let read = |text: &str| read(text, Form::Choice(&options));
        assert_eq!(read(" b "), Ok(Meaning::Choice("B".into())));
        assert_eq!(read("A"), Ok(Meaning::Choice("A".into())));
        assert_eq!(read("4 Use neither"), Ok(Meaning::Choice("Use neither".into())));
        assert_eq!(read("3"), Ok(Meaning::Menu(Reply::Deny(None))));
        assert_eq!(read("3 ask Bob"), Ok(Meaning::Menu(Reply::Deny(Some("ask Bob".into())))));
        for bad in ["C", "1", "2", "6", "5 x", "A?", "A B", "Use Vue", "", "é", "Ａ", "4"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_batch_is_answered_with_how_much_of_it() {
        let read = |text: &str| read(text, Form::Batch { items: 7 });
        assert_eq!(read("all 7"), Ok(Meaning::All { seen: 7 }));
        assert_eq!(read("ALL  6"), Ok(Meaning::All { seen: 6 }), "whether that still fits is the store's question");
        assert_eq!(read("first 3"), Ok(Meaning::First(3)));
        assert_eq!(read("3"), Ok(Meaning::Menu(Reply::Deny(None))));
        assert_eq!(read("3  too many"), Ok(Meaning::Menu(Reply::Deny(Some("too many".into())))));
        assert_eq!(read("none"), Ok(Meaning::Menu(Reply::Deny(None))));
        for bad in
            ["1", "2", "6", "all", "first", "first 0", "first 8", "first -1", "first +3", "first 3 or so", "all 7!", ""]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn freezing_needs_exactly_its_words() {
        for form in [Form::Menu, Form::Batch { items: 2 }] {
            assert_eq!(read("Freeze", form), Ok(Meaning::Freeze(Stop::Agent)));
            assert_eq!(read(" freeze  all\n", form), Ok(Meaning::Freeze(Stop::All)));
            for bad in ["freeze!", "do freeze", "freeze everything", "unfreeze"] {
                assert!(read(bad, form).is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_text_of_which_something_may_be_missing_is_confirmed_first() {
        let (options, all) = (options(), [Rest::Nothing, Rest::OwnLetter, Rest::Usual, Rest::Doubtful]);
        for (text, form) in [("4 x", Form::Menu), ("5 x", Form::Menu), ("4 neither", Form::Choice(&options))] {
            let heard = |rest| hear(text, rest, form).unwrap();
            assert_eq!(
                all.map(|rest| matches!(heard(rest), Understood::Answer(_))),
                [true, true, false, false],
                "{text}"
            );
        }
        for (text, form) in [("1", Form::Menu), ("6", Form::Menu), ("b", Form::Choice(&options))] {
            assert_eq!(all.map(|rest| hear(text, rest, form).is_ok()), [true, true, true, false], "{text}");
        }
        for (text, form) in [("3", Form::Menu), ("3 no", Form::Menu), ("freeze", Form::Batch { items: 2 })] {
            assert!(all.iter().all(|rest| matches!(hear(text, *rest, form), Ok(Understood::Answer(_)))), "{text}");
        }
        assert_eq!(
            hear("freeze all\n\nnow!", Rest::Doubtful, Form::Menu),
            Ok(Understood::Answer(Meaning::Freeze(Stop::All)))
        );
        assert!(is_confirmation(" Confirm\n", Rest::Usual) && !is_confirmation("confirm", Rest::Doubtful));
        assert!(!is_confirmation("confirm 1", Rest::Nothing) && !is_confirmation("1", Rest::Nothing));
    }

    #[test]
    fn every_form_shows_what_it_takes() {
        assert_eq!(menu(Form::Menu), reply::MENU);
        let options = options();
        insta::assert_snapshot!(menu(Form::Choice(&options)), @r"
        A  Use React
        B  Use Vue
        3  No answer
        4  An answer of your own (reply: 4 your answer)
        ");
        let sly = ["Vue\n1  Allow once".to_owned()];
        assert!(menu(Form::Choice(&sly)).starts_with("A  Vue\\n1  Allow once\n3  No answer"), "one line, as it is");
        assert!(menu(Form::Batch { items: 7 }).starts_with("all 7  Allow all 7\n"));
        assert!(repeat(Unclear::Empty, Form::Batch { items: 7 }).contains("Nothing was decided"));
    }

    proptest! {
        #[test]
        fn nothing_allows_a_batch_but_the_exact_form(text in "\\PC{0,4}(all|first|1|yes|)[ ]{0,2}[0-9a-z]{0,3}\\PC{0,2}") {
            if let Ok(Meaning::All { .. } | Meaning::First(_)) = read(&text, Form::Batch { items: 50 }) {
                let words: Vec<&str> = text.split_whitespace().collect();
                prop_assert_eq!(words.len(), 2);
                prop_assert!(["all", "first"].contains(&words[0].to_lowercase().as_str()));
            }
        }
    }
}
