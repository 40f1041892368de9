//! Hex, lower case only: the one spelling our ids, hashes and exports use.

/// The bytes as lower-case hex.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

/// Exactly `N` bytes of lower-case hex, or nothing.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // A shorter text would fill only a part.
    let read = base16ct::lower::decode(text, &mut bytes).is_ok_and(|read| read.len() == N);
    read.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_there_and_back() {
        assert_eq!(encode(&[0, 0xab, 255]), "00abff");
        assert_eq!(decode::<3>("00abff"), Some([0, 0xab, 255]));
        for bad in ["00ABFF", "00abf", "00abfg", "00abff0"] {
            assert_eq!(decode::<3>(bad), None, "{bad}");
        }
    }
}
