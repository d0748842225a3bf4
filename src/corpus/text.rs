//! Is it text? Anything that a byte-level tokenizer could read is text but what people never mean
//! to feed it: UTF-16 and UTF-32, archives, images, programs.

/// Bytes at the start of a file that are looked at.
pub const SAMPLE: usize = 8192;

/// Why a file that starts like this is not text, or None if it is.
pub fn refusal(sample: &[u8]) -> Option<(&'static str, &'static str)> {
    const CONVERT: &str = "convert it first, for instance with: iconv -f UTF-16 -t UTF-8";
    const CONVERT_32: &str = "convert it first, for instance with: iconv -f UTF-32 -t UTF-8";
    const NOT_TEXT: &str = "give text; input_format= says what packed files and archives are";
    // The mark of UTF-32LE begins with that of UTF-16LE.
    if sample.starts_with(b"\xff\xfe\0\0") || sample.starts_with(b"\0\0\xfe\xff") {
        return Some(("UTF-32 text, not UTF-8", CONVERT_32));
    }
    if sample.starts_with(b"\xff\xfe") || sample.starts_with(b"\xfe\xff") {
        return Some(("UTF-16 text, not UTF-8", CONVERT));
    }
    let mut zeros = [0usize; 4];
    let mut controls = 0usize;
    for (i, &byte) in sample.iter().enumerate() {
        match byte {
            0 => zeros[i % 4] += 1,
            // Tab to carriage return and escape are common in text files; backspace in old
            // manual pages.
            8..=13 | 27 => {}
            1..=31 | 127 => controls += 1,
            _ => {}
        }
    }
    let n_zeros: usize = zeros.iter().sum();
    if n_zeros > 0 {
        let quarter = sample.len() / 4;
        let full = zeros.iter().filter(|&&z| z * 10 > quarter * 8).count();
        if full >= 2 && sample.len() >= 8 && n_zeros * 2 > sample.len() {
            return Some(("UTF-32 text without a byte order mark, not UTF-8", CONVERT_32));
        }
        let (even, odd) = (zeros[0] + zeros[2], zeros[1] + zeros[3]);
        // Binary data may have a few zeros that happen to stand at even places.
        if even.abs_diff(odd) * 10 > n_zeros * 8 && n_zeros > 1 && n_zeros * 10 > sample.len() {
            return Some(("UTF-16 text without a byte order mark, not UTF-8", CONVERT));
        }
        return Some(("binary data (it holds zero bytes), not text", NOT_TEXT));
    }
    if controls * 20 > sample.len() {
        return Some(("binary data (it holds many control characters), not text", NOT_TEXT));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn text_is_text() {
        for text in ["", "a", "héllo\n\t\x0c\x1b[0m", "日本語"] {
            assert_eq!(refusal(text.as_bytes()), None, "{text:?}");
        }
        // Latin-1 and other old encodings are read byte by byte.
        assert_eq!(refusal(b"caf\xe9 na\xefve \xff\xfa"), None);
    }

    #[test]
    fn other_things_are_not() {
        let reason = |data: &[u8]| refusal(data).map_or("text", |(what, _)| what);
        assert!(reason(b"\xff\xfeh\0i\0").starts_with("UTF-16 text,"));
        assert!(reason(b"\xff\xfe\0\0h\0\0\0").starts_with("UTF-32 text,"));
        assert!(reason(&utf16("hello world")).starts_with("UTF-16 text without"));
        let big_endian: Vec<u8> = "hello".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(reason(&big_endian).starts_with("UTF-16 text without"));
        let wide: Vec<u8> = "hello world".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        assert!(reason(&wide).starts_with("UTF-32 text without"));
        assert!(reason(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").starts_with("binary"));
        let few_zeros = [&b"\x7fELF\x02\x01\x01"[..], &(0..=255).collect::<Vec<u8>>().repeat(8)];
        assert!(reason(&few_zeros.concat()).starts_with("binary"));
        assert!(reason(b"PK\x03\x04\x14\x01\x02\x03\x05").starts_with("binary"));
    }
}
