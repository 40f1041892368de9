//! Lookalike letters.
//!
//! Takes a character, gives the Latin letter that it looks like. Promise: only used on words that mix scripts, so that
//! honest Russian or Greek stays unchanged.

/// The Latin letter that a lower-case letter of another script looks like.
pub(super) fn latin(c: char) -> Option<char> {
    Some(match c {
        'а' | 'α' | 'ɑ' => 'a',
        'ь' | 'в' | 'β' => 'b',
        'с' | 'ϲ' | 'ⅽ' | 'ς' => 'c',
        'ԁ' | 'ɗ' | 'ժ' => 'd',
        'е' | 'є' | 'ε' | 'ҽ' | 'ɛ' => 'e',
        'ғ' | 'ϝ' | 'ք' => 'f',
        'ɡ' | 'ց' | 'ԍ' => 'g',
        'һ' | 'н' | 'հ' | 'ⱨ' => 'h',
        'і' | 'ι' | 'ӏ' | 'ɩ' | 'ꭵ' => 'i',
        'ј' | 'ϳ' => 'j',
        'к' | 'κ' | 'ĸ' => 'k',
        'ⅼ' | 'ا' | 'ɭ' => 'l',
        'м' | 'ⅿ' | 'μ' => 'm',
        'п' | 'η' | 'ո' | 'и' => 'n',
        'о' | 'ο' | 'օ' | 'σ' | 'ס' | '०' | '౦' => 'o',
        'р' | 'ρ' | 'ϸ' => 'p',
        'ԛ' | 'գ' => 'q',
        'г' | 'я' | 'ꭇ' => 'r',
        'ѕ' | 'ꮪ' | 'ʂ' => 's',
        'т' | 'τ' => 't',
        'υ' | 'ц' | 'ս' | 'ʋ' => 'u',
        'ѵ' | 'ν' | 'ꮩ' => 'v',
        'ԝ' | 'ω' | 'ш' | 'ѡ' | 'ա' => 'w',
        'х' | 'χ' | 'ⅹ' => 'x',
        'у' | 'γ' | 'ү' => 'y',
        'ʐ' | 'ζ' | 'ꮓ' => 'z',
        _ => return None,
    })
}

/// The letter behind a disguise that compatibility folding does not know: small capitals, filled circles, turned
/// letters.
pub(super) fn dressed(c: char) -> Option<char> {
    const SMALL: &str = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡxʏᴢ";
    const TURNED: &str = "ɐqɔpǝɟƃɥᴉɾʞlɯuodbɹsʇnʌʍxʎz";
    let code = u32::from(c);
    let offset = match code {
        0x1f150..=0x1f169 => Some(code - 0x1f150),
        0x1f170..=0x1f189 => Some(code - 0x1f170),
        0x1f1e6..=0x1f1ff => Some(code - 0x1f1e6),
        0x250..=0x2af | 0x1d00..=0x1d7f | 0xa730..=0xa7ff | 0x183..=0x1dd if !c.is_ascii() => {
            let place = |row: &str| row.chars().position(|known| known == c).and_then(|at| u32::try_from(at).ok());
            place(SMALL).or_else(|| place(TURNED))
        }
        _ => None,
    };
    offset.and_then(|offset| char::from_u32(u32::from('a') + offset))
}
