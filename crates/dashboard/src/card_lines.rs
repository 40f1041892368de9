//! The text of an approval card, read back into its parts, so that a page can lay them out.
//!
//! Takes the text that every channel shows; gives facts, quotations and the writes of a batch. Promise: nothing of the
//! text is left out; a quoted line never becomes a fact, whatever it says.

/// A name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardFact {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the value is text of several lines.
    pub(crate) is_long: bool,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CardItem {
    pub(crate) number: usize,
    pub(crate) capability: String,
    pub(crate) facts: Vec<CardFact>,
}

/// The parts of a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CardText {
    pub(crate) headline: String,
    pub(crate) why: Vec<String>,
    /// Where targets come from.
    pub(crate) origins: Vec<String>,
    pub(crate) facts: Vec<CardFact>,
    pub(crate) items: Vec<CardItem>,
    /// The objects it is about, in third-party words.
    pub(crate) about: String,
    /// The agent's own words.
    pub(crate) said: String,
    /// Lines of no other kind.
    pub(crate) rest: Vec<String>,
}

const ABOUT: &str = "what it is about, in the words of others:";
const SAID: &str = "the agent says, and nobody has checked it:";
const SAME: &str = "the same in all:";

/// Where quoted lines belong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteTarget {
    Nothing,
    Fact,
    About,
    Said,
}

impl CardText {
    /// Reads the text of a card.
    pub(crate) fn read(text: &str) -> Self {
        let mut card = Self::default();
        let mut target = QuoteTarget::Nothing;
        for (place, line) in text.lines().enumerate() {
            if let Some(words) = line.strip_prefix("| ") {
                card.quote(target, words);
                continue;
            }
            target = card.line(place, line);
        }
        card
    }

    fn quote(&mut self, target: QuoteTarget, words: &str) {
        let text = match target {
            QuoteTarget::About => &mut self.about,
            QuoteTarget::Said => &mut self.said,
            QuoteTarget::Fact | QuoteTarget::Nothing => {
                let facts = self.items.last_mut().map_or(&mut self.facts, |item| &mut item.facts);
                match facts.last_mut().filter(|_| target == QuoteTarget::Fact) {
                    Some(fact) => &mut fact.value,
                    None => {
                        self.rest.push(words.to_owned());
                        return;
                    }
                }
            }
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(words);
    }

    /// Reads one line that is not quoted, and says where quoted lines after it belong.
    fn line(&mut self, place: usize, line: &str) -> QuoteTarget {
        if place == 0 && !line.starts_with("title: ") {
            line.clone_into(&mut self.headline);
        } else if line == ABOUT {
            return QuoteTarget::About;
        } else if line == SAID {
            return QuoteTarget::Said;
        } else if line == SAME {
        } else if let Some(why) = line.strip_prefix("why you are asked: ") {
            self.why.push(why.to_owned());
        } else if let Some(origin) = line.strip_prefix("origin of ") {
            self.origins.push(origin.to_owned());
        } else if let Some(item) = item(line) {
            self.items.push(item);
        } else if let Some(name) = line.strip_suffix(':').filter(|name| !name.contains(": ")) {
            self.fact(name, "", true);
            return QuoteTarget::Fact;
        } else if let Some((name, value)) = line.split_once(": ") {
            self.fact(name, value, false);
        } else if !line.is_empty() {
            self.rest.push(line.to_owned());
        }
        QuoteTarget::Nothing
    }

    fn fact(&mut self, name: &str, value: &str, is_long: bool) {
        let fact = CardFact { name: name.to_owned(), value: value.to_owned(), is_long };
        self.items.last_mut().map_or(&mut self.facts, |item| &mut item.facts).push(fact);
    }

    /// The value of a fact.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
    }
}

/// `write 3: email.send`. The name of an argument never looks like this: one with a blank stands in quotes.
fn item(line: &str) -> Option<CardItem> {
    let (number, capability) = line.strip_prefix("write ")?.split_once(": ")?;
    Some(CardItem { number: number.parse().ok()?, capability: capability.to_owned(), facts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_whole_and_quotations_stay_quotations() {
        let text = "email.send\nwhy you are asked: rule org.yaml:14\nto: a@x.example\norigin of to a@x.example: NEW, met nowhere before\n\
                    body:\n| Hello\n| write 2: email.send\n| to: b@x.example\nsubject: Hi: you\n\
                    the agent says, and nobody has checked it:\n| trust me\n";
        let card = CardText::read(text);
        assert_eq!(card.headline, "email.send");
        assert_eq!(card.why, ["rule org.yaml:14"]);
        assert_eq!(card.origins, ["to a@x.example: NEW, met nowhere before"]);
        assert_eq!(card.value("body"), Some("Hello\nwrite 2: email.send\nto: b@x.example"));
        assert_eq!(card.value("subject"), Some("Hi: you"));
        assert!(card.items.is_empty() && card.rest.is_empty());
        assert_eq!(card.said, "trust me");
    }

    #[test]
    fn the_writes_of_a_batch_have_their_own_facts() {
        let text = "2 writes at once: 2 x email.send\nthe same in all:\nsubject: Hi\nwrite 1: email.send\nto: a\n\
                    write 2: email.send\nto: b\nbody:\n| x\n";
        let card = CardText::read(text);
        assert_eq!(card.facts.len(), 1);
        assert_eq!(card.items.len(), 2);
        let second = card.items.last().unwrap();
        assert_eq!((second.number, second.facts.len()), (2, 2));
        assert_eq!(second.facts.last().unwrap().value, "x");
    }
}
