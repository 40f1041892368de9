//! Fields: the names and values of a form or a query.

use percent_encoding::percent_decode_str;
use sluice_core::refusal::Code;
use sluice_services::CallError;

/// The largest form that is read, in bytes: a card of a thousand writes with each of them ticked fits.
pub const LONGEST_FORM: usize = 1 << 20;

/// The fields of a form or a query, in order. A name may appear more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FormFields(pub Vec<(String, String)>);

impl FormFields {
    /// Reads `name=value&…`.
    pub(crate) fn parse(text: &str) -> Result<Self, CallError> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        };
        text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect::<Result<_, CallError>>().map(Self)
    }

    /// The first value of a name; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// Every value of a name.
    pub(crate) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a name, parsed; nothing if it is empty.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, CallError> {
        match self.get(name).trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                CallError::with_text(Code::DoorParameter, &format!("the field `{name}` has the wrong form"))
            }),
        }
    }
}

fn decode(text: &str) -> Result<String, CallError> {
    let plain = text.replace('+', " ");
    let decoded = percent_decode_str(&plain).decode_utf8();
    // Browsers use CR LF for the lines of a form.
    decoded
        .map(|text| text.replace("\r\n", "\n"))
        .map_err(|_| CallError::with_text(Code::DoorParameter, "a field of the form is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_with_repeated_names_and_lines() {
        let form = FormFields::parse("pick=a&pick=b&note=x%0D%0Ay+z&empty=").unwrap();
        assert_eq!(form.all("pick").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((form.get("note"), form.get("empty"), form.get("none")), ("x\ny z", "", ""));
        assert!(FormFields::parse("a=%ff").is_err());
    }
}
