//! Small things that every reader needs: text, ids, and how values are shown in messages.

use super::byte_alphabet;
use crate::base::error::{Error, Result};
pub(super) use crate::tokenizer::spec::{shown, shown_token};

/// The largest id: the number after it can still be counted.
pub(super) const MAX_ID: u32 = u32::MAX - 1;

/// The id that decimal `digits` spell.
pub(super) fn parse_id(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| plain && id <= MAX_ID)
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
