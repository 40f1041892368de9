//! Hex, lower case only: the one spelling our ids, hashes and exports use.

/// The bytes as lower-case hex.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = vec![0; bytes.len() * 2];
    write(&mut text, bytes);
    // Digits are ASCII: there is no failing case.
    String::from_utf8(text).unwrap_or_default()
}

/// The bytes as lower-case hex, two digits for each. Without branches or tables: every entry has several hashes.
#[inline]
pub(crate) fn write(to: &mut [u8], bytes: &[u8]) {
    const fn digit(nibble: u8) -> u8 {
        nibble + if nibble > 9 { b'a' - 10 } else { b'0' }
    }
    let (pairs, _) = to.as_chunks_mut::<2>();
    for ([high, low], byte) in pairs.iter_mut().zip(bytes) {
        (*high, *low) = (digit(byte >> 4), digit(byte & 15));
    }
}

/// Exactly `N` bytes of lower-case hex, or nothing.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
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
