//! The header of a message, separated from its body by one strict parser.
//!
//! Takes the bytes of a message or of one of its parts, gives its header fields as they stand there and where its body
//! begins. Promise: one pass, no field value is interpreted, and a header that another parser could divide differently
//! is marked ([`MailHead::is_certain`]).

/// One header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailHeaderField<'m> {
    /// Its name as it was written.
    pub name: &'m [u8],
    /// Everything after the colon, folds included, without the line break at its end.
    pub value: &'m [u8],
    /// The byte where it begins.
    pub at: usize,
}

impl MailHeaderField<'_> {
    /// Whether it has this name, in whichever case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Its value on one line. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn unfolded(&self) -> String {
        let text = String::from_utf8_lossy(self.value);
        text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect::<String>().trim().to_owned()
    }
}

/// The header of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailHead<'m> {
    /// Its fields, topmost first.
    pub fields: Vec<MailHeaderField<'m>>,
    /// Where the first field may begin: after the envelope line of a mailbox file, if there is one.
    pub start: usize,
    /// Where the body begins.
    pub body: usize,
    /// Whether every parser divides it like this: each line is a field or continues one, no line ends with a lone
    /// carriage return, and no zero byte stands in it.
    pub is_certain: bool,
}

impl<'m> MailHead<'m> {
    /// Separates the header of a message.
    #[must_use]
    pub fn of(bytes: &'m [u8]) -> Self {
        let envelope = bytes.starts_with(b"From ");
        let start = if envelope { next_line(bytes, 0) } else { 0 };
        Self::until(bytes, start, |_| false)
    }

    /// Separates the header of a part that begins at `start` and ends at a line for which `ends` holds.
    #[must_use]
    pub fn until(bytes: &'m [u8], start: usize, ends: impl Fn(&[u8]) -> bool) -> Self {
        let mut head = Self { fields: Vec::new(), start, body: bytes.len(), is_certain: true };
        let mut at = start;
        while at < bytes.len() {
            let next = next_line(bytes, at);
            let line = line(bytes, at, next);
            if line.is_empty() {
                head.body = next;
                break;
            }
            if ends(line) {
                head.body = at;
                break;
            }
            head.is_certain &= !line.iter().any(|byte| matches!(byte, b'\r' | 0));
            if matches!(line.first(), Some(b' ' | b'\t')) {
                match head.fields.last_mut() {
                    Some(field) => {
                        let from = field.at + field.name.len() + 1;
                        field.value = bytes.get(from..at + line.len()).unwrap_or_default();
                    }
                    None => head.is_certain = false,
                }
            } else if let Some(colon) = name_end(line) {
                let (name, value) = line.split_at(colon);
                head.fields.push(MailHeaderField { name, value: value.get(1..).unwrap_or_default(), at });
            } else {
                // Some parsers skip such a line, some take it for the beginning of the body.
                (head.body, head.is_certain) = (at, false);
                break;
            }
            at = next;
        }
        head
    }

    /// The fields of this name, topmost first.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &MailHeaderField<'m>> {
        self.fields.iter().filter(move |field| field.is(name))
    }

    /// The value of a field; `None` if there is none, and the first where several are equal.
    ///
    /// # Errors
    /// The first of several that differ.
    pub fn single_field(&self, name: &str) -> Result<Option<&MailHeaderField<'m>>, &MailHeaderField<'m>> {
        let mut all = self.named(name);
        let Some(first) = all.next() else { return Ok(None) };
        if all.all(|other| other.unfolded() == first.unfolded()) { Ok(Some(first)) } else { Err(first) }
    }
}

/// Where the line after this one begins.
#[must_use]
pub fn next_line(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| at + end + 1)
}

/// A line without its line break.
#[must_use]
pub fn line(bytes: &[u8], at: usize, next: usize) -> &[u8] {
    let line = bytes.get(at..next).unwrap_or_default();
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

/// Where the name of a field ends; `None` if the line is not a field.
fn name_end(line: &[u8]) -> Option<usize> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = line.get(..colon)?;
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some(colon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<String>, usize, bool) {
        let head = MailHead::of(text.as_bytes());
        let names = head.fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
        (names, head.body, head.is_certain)
    }

    #[test]
    fn the_first_empty_line_ends_the_head_whatever_stands_before_it() {
        for date in ["Tue, 17 Nov 2026 10:00:00 Z", "17 Nov 2026 10:00 UT", "10:00 PM", "(", "\"", "<"] {
            for end in ["\n", "\r\n"] {
                let text = format!("From: a@b.example{end}Date: {date}{end}{end}From: c@d.example{end}");
                let (found, body, certain) = names(&text);
                assert_eq!(found, ["From", "Date"], "{date}");
                assert!(certain && text[body..].starts_with("From: c@d"), "{date}");
            }
        }
    }

    #[test]
    fn folds_belong_to_their_field() {
        let head = MailHead::of(b"To: a,\r\n b\r\n\tc\r\nX: y\r\n\r\n");
        assert_eq!(head.fields[0].unfolded(), "a, b\tc");
        assert_eq!(head.fields.len(), 2);
        assert!(head.is_certain);
    }

    #[test]
    fn what_others_could_divide_differently_is_not_certain() {
        for odd in [
            "From : a@b.example\n\n",
            " From: a@b.example\n\n",
            "From: a@b.example\nno field\nSubject: x\n\n",
            "From: a@b.example\rSubject: x\n\n",
            "From: a\0@b.example\n\n",
            "Fr\u{f6}m: a@b.example\n\n",
            ": x\n\n",
        ] {
            let certain = names(odd).2;
            // The envelope line of a mailbox file is no field.
            assert!(!certain || odd.starts_with("From :"), "{odd:?}");
        }
        assert_eq!(names("From ana Thu Aug 22 12:36:23 2002\nFrom: a@b.example\n\nx").0, ["From"]);
        assert_eq!(names("From: a\nSubject: only a head"), (vec!["From".into(), "Subject".into()], 28, true));
        assert_eq!(names("").0, Vec::<String>::new());
    }

    #[test]
    fn several_fields_of_a_name_are_one_only_if_they_say_the_same() {
        let head = MailHead::of(b"From: a\nFROM:  a\nSubject: x\nSubject: y\n\n");
        assert!(head.single_field("from").unwrap().is_some());
        assert!(head.single_field("subject").is_err() && head.single_field("to").unwrap().is_none());
    }
}
