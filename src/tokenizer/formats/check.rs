//! Small things that every reader needs: text, ids, and how values are shown in messages.

use super::byte_alphabet;
use crate::base::error::{Error, Result};

/// The largest id: the number after it can still be counted.
pub(super) const MAX_ID: u32 = u32::MAX - 1;

/// The id that decimal `digits` spell.
pub(super) fn parse_id(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| plain && id <= MAX_ID)
}

/// A text for a message: quoted, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// A token for a message: as text where it is text, otherwise as bytes.
pub(super) fn shown_token(token: &[u8]) -> String {
    match std::str::from_utf8(token) {
        Ok(text) => shown(text),
        Err(_) => {
            let bytes: String = token.iter().take(20).map(|b| format!("\\x{b:02x}")).collect();
            format!("b\"{bytes}\"{}", if token.len() > 20 { "…" } else { "" })
        }
    }
}

/// `data` as text.
pub(super) fn utf8(data: &[u8]) -> Result<&str> {
    std::str::from_utf8(data).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = data.get(offset).copied().unwrap_or_default();
        Error::tokenizer(format!("not UTF-8: the byte 0x{byte:02x} at byte offset {offset}"))
    })
}

/// The spelling of a token in GPT-2's alphabet, for a message.
pub(super) fn shown_spelling(token: &[u8]) -> String {
    shown(&byte_alphabet::encode(token))
}
