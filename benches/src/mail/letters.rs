//! A hundred thousand mails that never change: words by Zipf's law, five hundred senders, three years.
//!
//! Takes a number, gives the mail with that number as RFC 5322 bytes. Promise: the same bytes for the same number, so
//! that every side reads the same mail.

use std::fmt::Write as _;

/// Number of words.
const WORDS: usize = 120_000;
/// How steeply their frequency falls.
const STEEP: f64 = 1.07;
/// Number of senders.
pub const SENDERS: u64 = 500;
/// When the first mail arrived, in seconds; and the interval between mails.
const FIRST: i64 = 1_700_000_000;
const APART: i64 = 950;

/// A number generator with a fixed sequence.
pub struct LetterRandom(u64);

impl LetterRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.roll() % most.max(1)
    }

    fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The generator of mails.
pub struct LetterGenerator {
    /// For each word, the probability of it or a more frequent one.
    up_to: Vec<f64>,
}

/// One mail.
pub struct GeneratedLetter {
    pub id: String,
    pub received: i64,
    pub sender: String,
    pub raw: String,
}

impl LetterGenerator {
    pub fn new() -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=WORDS)
            .map(|rank| {
                sum += (rank as f64).powf(-STEEP);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|part| *part /= sum);
        Self { up_to }
    }

    fn word_of(&self, dice: &mut LetterRandom) -> String {
        let at = dice.fraction();
        word(self.up_to.partition_point(|part| *part < at) as u64)
    }

    fn words(&self, dice: &mut LetterRandom, many: u64, out: &mut String) {
        for n in 0..many {
            let sign = match n % 13 {
                12 => ".\r\n",
                _ => " ",
            };
            let _ = write!(out, "{}{sign}", self.word_of(dice));
        }
    }

    /// The mail with this number.
    pub fn get(&self, n: u64) -> GeneratedLetter {
        let mut dice = LetterRandom::new(n.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5bd1);
        let sender = sender(dice.below(SENDERS));
        let received = received(n);
        let date =
            jiff::Timestamp::from_second(received).map(|at| at.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string());
        let (id, mut subject, mut body) = (format!("m{n:06}"), String::new(), String::new());
        self.words(&mut dice, 6, &mut subject);
        let many = 120 + dice.below(300);
        self.words(&mut dice, many, &mut body);
        let raw = format!(
            "From: {sender} <{sender}@north.example>\r\nTo: Office <office@alder.example>\r\nSubject: {}\r\nDate: {}\r\n\
             Message-ID: <{id}@north.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{body}\r\n",
            subject.replace("\r\n", " ").trim(),
            date.unwrap_or_default(),
        );
        GeneratedLetter { id, received, sender, raw }
    }
}

/// When a mail arrived, in seconds.
pub fn received(n: u64) -> i64 {
    FIRST + i64::try_from(n).unwrap_or(0) * APART
}

/// A word by its rank, the most frequent first: letters only, so that every tokenizer splits it the same way.
pub fn word(rank: u64) -> String {
    const SYLLABLES: [&str; 32] = [
        "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su", "ta", "ve", "wi",
        "xo", "yu", "za", "bre", "cli", "dro", "flu", "gra", "ple", "sti", "tro", "vru", "sma", "tle",
    ];
    let (mut rest, mut text) = (rank + 32, String::new());
    while rest > 0 {
        text.push_str(SYLLABLES.get(usize::try_from(rest % 32).unwrap_or(0)).copied().unwrap_or("ba"));
        rest /= 32;
    }
    text
}

/// A sender by number.
pub fn sender(n: u64) -> String {
    format!("person{}", word(n * 7))
}
