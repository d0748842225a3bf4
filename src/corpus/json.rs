//! One string out of a JSON value, with the whole value checked.
//!
//! A record is read once, from its first byte to its last, and only the requested text is copied:
//! linear time, no allocation. Accepts what Python's `json` accepts: RFC 8259, `NaN` and `Infinity`;
//! of equal keys, the last counts. A lone surrogate (`"\ud800"`) becomes U+FFFD, as in text from
//! Python.
//!
//! The bytes must be UTF-8; the caller checks many records at once, which is cheaper.

use memchr::memchr2;

/// Deeper than real records are nested; a hostile record must not exhaust the stack.
const MAX_DEPTH: usize = 512;

/// The value at the requested path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue {
    /// A string, which was appended to the output.
    Text,
    Missing,
    Null,
    /// A value of another type, by name.
    Other(&'static str),
}

/// Why a value is not JSON, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    pub at: usize,
    pub what: &'static str,
}

type JsonResult<T> = std::result::Result<T, JsonError>;

/// Appends the string at `path` (names of members, from the outermost inwards) of the JSON value
/// `data` to `out`.
pub fn text_at(data: &[u8], path: &[String], out: &mut Vec<u8>) -> JsonResult<FieldValue> {
    let mut scanner = JsonScanner { data, at: 0, path, start: out.len(), out };
    scanner.space();
    let found = scanner.sought(0, 0)?;
    scanner.space();
    if scanner.at < data.len() {
        return scanner.wrong("trailing characters after the value");
    }
    Ok(found)
}

/// A key on the path.
struct PathKey {
    /// The number of names of the path up to and including it.
    level: usize,
    /// Whether the key is the whole path, with its dots.
    whole: bool,
}

/// Whether a name is `parts` joined by dots.
fn is_joined(name: &[u8], parts: &[String]) -> bool {
    let mut rest = Some(name);
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            rest = rest.and_then(|rest| rest.strip_prefix(b"."));
        }
        rest = rest.and_then(|rest| rest.strip_prefix(part.as_bytes()));
    }
    rest == Some(b"")
}

struct JsonScanner<'a> {
    data: &'a [u8],
    at: usize,
    path: &'a [String],
    out: &'a mut Vec<u8>,
    /// Where in `out` the text begins.
    start: usize,
}

impl JsonScanner<'_> {
    fn wrong<T>(&self, what: &'static str) -> JsonResult<T> {
        Err(JsonError { at: self.at, what })
    }

    fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads the value that the first `level` names of the path lead to.
    fn sought(&mut self, level: usize, depth: usize) -> JsonResult<FieldValue> {
        // Of equal keys the last counts: an earlier text is dropped.
        self.out.truncate(self.start);
        let last = level == self.path.len();
        match self.peek() {
            Some(b'"') if last => {
                self.at += 1;
                self.string(true)?;
                Ok(FieldValue::Text)
            }
            Some(b'{') if !last => self.object(Some(level), depth),
            Some(byte) => {
                let what = match byte {
                    b'{' => "an object",
                    b'[' => "an array",
                    b'"' => "a string",
                    b't' | b'f' => "true or false",
                    b'n' => "null",
                    _ => "a number",
                };
                self.value(depth)?;
                Ok(match (byte, last) {
                    (b'n', _) if level > 0 => FieldValue::Null,
                    (_, true) => FieldValue::Other(what),
                    // The record itself must be an object; members on the path may be missing.
                    (_, false) if level == 0 => FieldValue::Other(what),
                    (_, false) => FieldValue::Missing,
                })
            }
            None => self.wrong("unexpected end, expected a value"),
        }
    }

    /// Skips any value.
    fn value(&mut self, depth: usize) -> JsonResult<()> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string(false)
            }
            Some(b'{') => self.object(None, depth).map(|_| ()),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'N') => self.word("NaN"),
            Some(b'I') => self.word("Infinity"),
            Some(_) => self.wrong("expected a value"),
            None => self.wrong("unexpected end, expected a value"),
        }
    }

    fn word(&mut self, word: &str) -> JsonResult<()> {
        if !self.data[self.at..].starts_with(word.as_bytes()) {
            return self.wrong("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> JsonResult<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return self.word("Infinity");
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> JsonResult<()> {
        let n = self.data[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if n == 0 {
            return self.wrong("expected a digit");
        }
        self.at += n;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> JsonResult<()> {
        self.enter(depth)?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if self.next_is(b']')? {
                return Ok(());
            }
        }
    }

    /// Reads the bracket that opens an object or an array.
    fn enter(&mut self, depth: usize) -> JsonResult<()> {
        if depth >= MAX_DEPTH {
            return self.wrong("nested too deeply");
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// After a value: true if the array or object ends, false if a comma follows.
    fn next_is(&mut self, end: u8) -> JsonResult<bool> {
        self.space();
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            Some(b',') => {
                self.at += 1;
                self.space();
                Ok(false)
            }
            Some(_) => self.wrong("expected a comma"),
            None => self.wrong("unexpected end in an array or object"),
        }
    }

    /// Reads an object; if it is on the path, at `level`, returns the value at the path.
    fn object(&mut self, level: Option<usize>, depth: usize) -> JsonResult<FieldValue> {
        self.enter(depth)?;
        let mut found = FieldValue::Missing;
        // Whether `found` is the member named by the whole path, which takes precedence over nested ones.
        let mut direct = false;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(found);
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.wrong("expected a member name");
            }
            self.at += 1;
            let leads_to = match level {
                Some(level) => self.key_at(level)?,
                None => {
                    self.string(false)?;
                    None
                }
            };
            self.space();
            if self.peek() != Some(b':') {
                return self.wrong("expected a colon");
            }
            self.at += 1;
            self.space();
            match leads_to {
                Some(PathKey { level, whole }) if whole || !direct => {
                    found = self.sought(level, depth + 1)?;
                    direct |= whole;
                }
                _ => self.value(depth + 1)?,
            }
            if self.next_is(b'}')? {
                return Ok(found);
            }
        }
    }

    /// Reads a key; Some if it is on the path.
    fn key_at(&mut self, level: usize) -> JsonResult<Option<PathKey>> {
        let begin = self.at;
        self.string(false)?;
        let raw = &self.data[begin..self.at - 1];
        if !raw.contains(&b'\\') {
            return Ok(self.key(raw, level));
        }
        // Escaped, which is rare: decoded at the end of `out`, then removed.
        let (end, before) = (self.at, self.out.len());
        self.at = begin;
        self.string(true)?;
        let key = self.key(&self.out[before..], level);
        self.out.truncate(before);
        self.at = end;
        Ok(key)
    }

    fn key(&self, name: &[u8], level: usize) -> Option<PathKey> {
        if name == self.path[level].as_bytes() {
            return Some(PathKey { level: level + 1, whole: false });
        }
        // "meta.text" may be a name with a dot in it.
        let whole = level == 0 && self.path.len() > 1 && is_joined(name, self.path);
        whole.then_some(PathKey { level: self.path.len(), whole })
    }

    /// Reads a string after its first quotation mark, and appends it to `out` if `wanted`.
    fn string(&mut self, wanted: bool) -> JsonResult<()> {
        loop {
            let rest = &self.data[self.at..];
            let Some(n) = memchr2(b'"', b'\\', rest) else {
                self.at = self.data.len();
                return self.wrong("unexpected end in a string");
            };
            let plain = &rest[..n];
            // Without an early exit, so that the loop is vectorized.
            if plain.iter().fold(false, |any, &byte| any | (byte < 0x20)) {
                self.at += plain.iter().position(|&byte| byte < 0x20).unwrap_or(0);
                return self.wrong("control character in a string");
            }
            if wanted {
                self.out.extend_from_slice(plain);
            }
            self.at += n + 1;
            if rest[n] == b'"' {
                return Ok(());
            }
            self.escape(wanted)?;
        }
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, wanted: bool) -> JsonResult<()> {
        let byte = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'u') => return self.escaped_character(wanted),
            Some(_) => return self.wrong("invalid escape"),
            None => return self.wrong("unexpected end in a string"),
        };
        self.at += 1;
        if wanted {
            self.out.push(byte);
        }
        Ok(())
    }

    fn escaped_character(&mut self, wanted: bool) -> JsonResult<()> {
        self.at += 1;
        let mut unit = self.four_digits()?;
        let follows = |scanner: &Self| scanner.data[scanner.at..].starts_with(b"\\u");
        if (0xD800..0xDC00).contains(&unit) && follows(self) {
            let before = self.at;
            self.at += 2;
            let second = self.four_digits()?;
            if (0xDC00..0xE000).contains(&second) {
                unit = 0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00);
            } else {
                self.at = before;
            }
        }
        if wanted {
            let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
            self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }

    fn four_digits(&mut self) -> JsonResult<u32> {
        let digits = self.data.get(self.at..self.at + 4).unwrap_or_default();
        let value = digits.iter().try_fold(0, |value, &byte| {
            char::from(byte).to_digit(16).map(|digit| value << 4 | digit)
        });
        match value {
            Some(value) if digits.len() == 4 => {
                self.at += 4;
                Ok(value)
            }
            _ => self.wrong("expected four hexadecimal digits"),
        }
    }
}

#[cfg(test)]
mod tests;
