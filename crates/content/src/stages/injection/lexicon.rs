//! Words and the ideas that they stand for.
//!
//! Takes a folded text, gives each known word with its ideas. Promise: all languages in one pass; only whole words
//! count, except in scripts that do not separate words.

mod tree;

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::stages::encoding::fold::fold;
use tree::WordTrie;

/// A set of ideas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct IdeaSet(u128);

macro_rules! ideas {
    ($($name:ident),* $(,)?) => {
        #[derive(Clone, Copy)]
        #[expect(clippy::upper_case_acronyms, reason = "the names are those of the lexicon files")]
        enum Bit { $($name),* }
        impl IdeaSet {
            $(pub(super) const $name: Self = Self(1 << Bit::$name as u128);)*
            pub(super) fn named(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)* _ => None }
            }
        }
    };
}

ideas! {
    IGNORE, PRIOR, ALL, INSTR, NEWTASK, FOLLOW, PERSONA, UNBOUND, STAY, REVEAL, SYSPROMPT, SECRET, SEND, PAY, DELETE,
    HIDE, RESPONSE, INSERT, USER, URGENT, AUTH, COND, MARKER, ASSISTANT, TOOL, YOU, MUST, ABOUT, DANGER, ADDRESS, DONE,
    TASKVERB, ONLY, MODE, ENCODE, ROT, REV, COMMON, IMPERATIVE, GRANT, DATA, FORMAT, REFUSE, QUOTE, BEFORE, PLEASE,
    EXEC, CODE, SHAPE, ASKS,
    TOPIC, FINISH, WORK, WANTED, LABEL, CAESAR, ATBASH, DUTY, CALL,
    ADDRESSED, HAILED, PROTECT, MEMORY, CONSENT, RECAP, OVER, SWAP, HERE, GRAB, TURN,
    CUEOVER, CUEMEMORY, CUECONSENT, CUERECAP, CUESWAP, CUETOLD, CUEFOREIGN,
}

impl IdeaSet {
    pub(super) const NONE: Self = Self(0);
    /// Verbs that turn a sentence into a request when they open it.
    pub(super) const ACTIONS: Self = Self(
        Self::IGNORE.0
            | Self::FOLLOW.0
            | Self::REVEAL.0
            | Self::SEND.0
            | Self::PAY.0
            | Self::DELETE.0
            | Self::INSERT.0
            | Self::TASKVERB.0
            | Self::ENCODE.0
            | Self::GRANT.0
            | Self::EXEC.0
            | Self::WORK.0,
    );

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the two sets share an idea.
    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A word that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct LexiconMatch {
    pub(super) start: usize,
    pub(super) ideas: IdeaSet,
}

/// What may surround a word.
#[derive(Debug, Clone, Copy)]
struct LexiconEntry {
    ideas: IdeaSet,
    /// No letter may be directly before or after it.
    left: bool,
    right: bool,
}

/// All words of all languages.
pub(super) struct Lexicon {
    tree: WordTrie,
    entries: Vec<LexiconEntry>,
    /// The properties of each byte for a scan.
    bytes: [ByteClass; 256],
}

/// The properties of a byte for a scan.
#[derive(Debug, Clone, Copy, Default)]
struct ByteClass {
    /// Whether a word begins with it.
    begins: bool,
    /// Whether a word that begins with it may follow a letter.
    inside: bool,
    /// Whether the next byte follows a letter; `None` for a byte that continues a character.
    lettered: Option<bool>,
}

/// Built once; the files are part of the program.
pub(super) static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    Lexicon::build(&[
        include_str!("lexicon/en.txt"),
        include_str!("lexicon/marks.txt"),
        include_str!("lexicon/romance.txt"),
        include_str!("lexicon/germanic.txt"),
        include_str!("lexicon/slavic.txt"),
        include_str!("lexicon/others.txt"),
    ])
});

impl Lexicon {
    /// Lines are `IDEA IDEA: word | word*`; a star leaves the end of the word open, a hash begins a comment.
    fn build(files: &[&'static str]) -> Self {
        let mut found: Vec<(Cow<'static, str>, LexiconEntry)> = Vec::new();
        for line in files.iter().flat_map(|file| file.lines()) {
            let Some((names, list)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else { continue };
            let ideas = names.split_whitespace().filter_map(IdeaSet::named).fold(IdeaSet::NONE, IdeaSet::with);
            for word in list.split(" | ").map(str::trim).filter(|word| !word.is_empty()) {
                let (word, open) = word.strip_suffix('*').map_or((word, false), |stem| (stem, true));
                let mut folded = fold(word).text;
                if folded.bytes().any(|byte| byte.is_ascii_uppercase()) {
                    folded.to_mut().make_ascii_lowercase();
                }
                let parted = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && !is_unparted(c));
                let left = parted(folded.chars().next());
                let right = !open && parted(folded.chars().next_back());
                found.push((folded, LexiconEntry { ideas, left, right }));
            }
        }
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        found.dedup_by(|(word, entry), (known, all)| {
            let same = word == known;
            if same {
                all.ideas = all.ideas.with(entry.ideas);
                all.right &= entry.right;
            }
            same
        });
        let (words, entries): (Vec<Cow<'static, str>>, Vec<LexiconEntry>) = found.into_iter().unzip();
        let tree = WordTrie::new(words);
        let mut bytes = [ByteClass::default(); 256];
        for (value, byte) in (0_u8..=255).zip(&mut bytes) {
            byte.begins = tree.begins(value);
            byte.lettered = match value {
                0x80..=0xbf => None,
                // Scripts that do not separate words touch Latin words without a break: `AI助手` holds the word `AI`.
                _ => Some(value.is_ascii_alphanumeric() || (value >= 0x80 && !leads_unparted(value))),
            };
        }
        for (word, _) in tree.words().zip(&entries).filter(|(_, entry)| !entry.left) {
            for byte in word.bytes().take(1).flat_map(|byte| [byte, byte.to_ascii_uppercase()]) {
                if let Some(byte) = bytes.get_mut(usize::from(byte)) {
                    byte.inside = true;
                }
            }
        }
        Self { tree, entries, bytes }
    }

    pub(super) fn words(&self) -> impl Iterator<Item = String> {
        self.tree.words().map(str::to_owned)
    }

    /// Calls `each` for every word, ordered by their ends.
    pub(super) fn scan(&self, text: &str, mut each: impl FnMut(LexiconMatch)) {
        let bytes = text.as_bytes();
        let lettered_after = |at: usize| {
            bytes.get(at).is_some_and(|&byte| byte.is_ascii_alphanumeric() || (byte >= 0xc3 && !leads_unparted(byte)))
        };
        // Found words that may still end after later words, with their ends.
        let mut waiting: Vec<(usize, LexiconMatch)> = Vec::new();
        let mut lettered = false;
        for (start, &byte) in bytes.iter().enumerate() {
            let byte = self.bytes.get(usize::from(byte)).copied().unwrap_or_default();
            if byte.begins && (!lettered || byte.inside) {
                let ended = waiting.iter().take_while(|(end, _)| *end <= start).count();
                waiting.drain(..ended).for_each(|(_, found)| each(found));
                self.tree.at(bytes, start, |word, end| {
                    let Some(entry) = self.entries.get(word) else { return };
                    if !((entry.left && lettered) || (entry.right && lettered_after(end))) {
                        let place = waiting.iter().rposition(|(other, _)| *other <= end).map_or(0, |before| before + 1);
                        waiting.insert(place, (end, LexiconMatch { start, ideas: entry.ideas }));
                    }
                });
            }
            lettered = byte.lettered.unwrap_or(lettered);
        }
        waiting.into_iter().for_each(|(_, found)| each(found));
    }
}

/// Scripts without spaces between words.
fn is_unparted(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// The first bytes of kana, ideographs and Hangul.
const fn leads_unparted(byte: u8) -> bool {
    matches!(byte, 0xe3..=0xed)
}
