//! The alphabet in which GPT-2's files spell bytes: one printable character for each byte.
//!
//! A byte that Latin-1 prints (all but controls, the two spaces and the soft hyphen) is spelled by
//! the character of the same number; the other 68 get U+0100, U+0101, … in order. A space is
//! therefore `Ġ`, a newline `Ċ`, and no spelling contains white space.

/// One past the last character of the alphabet.
const END: usize = 0x100 + 68;
/// Marks a character that spells no byte.
const NONE: u16 = u16::MAX;

const SPELLING: [char; 256] = spelling();
const BYTE: [u16; END] = bytes();

const fn is_printed(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn spelling() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut i, mut next) = (0, 0x100);
    while i < 256 {
        table[i] = if is_printed(i as u8) {
            i as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(c) => c,
                None => '\0',
            }
        };
        i += 1;
    }
    table
}

const fn bytes() -> [u16; END] {
    let mut table = [NONE; END];
    let mut i = 0;
    while i < 256 {
        table[SPELLING[i] as usize] = i as u16;
        i += 1;
    }
    table
}

/// Appends the bytes that `text` spells; at the first character that spells none, gives it back
/// and leaves `out` as it was.
pub(super) fn decode_into(text: &str, out: &mut Vec<u8>) -> Result<(), char> {
    let start = out.len();
    out.reserve(text.len());
    for c in text.chars() {
        match BYTE.get(c as usize) {
            Some(&byte) if byte != NONE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                return Err(c);
            }
        }
    }
    Ok(())
}

/// The bytes that `text` spells, if it spells any.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decode_into(text, &mut bytes).ok()?;
    Some(bytes)
}

/// Appends the spelling of `bytes`.
pub(super) fn encode_into(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len());
    out.extend(bytes.iter().map(|&byte| SPELLING[byte as usize]));
}

/// The spelling of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    encode_into(bytes, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_spelling_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all);
        assert_eq!(text.chars().count(), 256);
        assert_eq!(decode(&text), Some(all));
        assert!(!text.chars().any(char::is_whitespace));
    }

    #[test]
    fn spellings_are_those_of_gpt2() {
        assert_eq!(encode(b" \n\0\t\x7f\xa0\xad"), "ĠĊĀĉġłŃ");
        assert_eq!(encode("é~!".as_bytes()), "Ã©~!");
        assert_eq!(END, 0x144);
    }

    #[test]
    fn others_are_refused_and_nothing_is_left_behind() {
        // U+0144 is the first character past the alphabet.
        for (text, culprit) in [("a b", ' '), ("a\n", '\n'), ("ń", 'ń'), ("中", '中')] {
            let mut out = b"kept".to_vec();
            assert_eq!(decode_into(text, &mut out), Err(culprit));
            assert_eq!(out, b"kept");
        }
    }
}
