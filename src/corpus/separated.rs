//! Rows of values between commas or tabs.
//!
//! As Python's `csv` reads them: a value that begins with a quotation mark goes on to the next
//! single one, and may hold anything; two of them stand for one. Elsewhere a quotation mark is a
//! character like others. Rows end with `\n`, `\r\n` or `\r`.

use memchr::{memchr, memchr3};

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Where it ends, with what ends it.
    pub end: usize,
    /// How many values it has; none if it is blank.
    pub values: usize,
    /// Whether the text ended before a quotation mark was closed.
    pub unclosed: bool,
}

/// Reads the row at the beginning of `data`: `emit` gets each value, in as many parts as it takes,
/// with its number. None if the row does not end in `data` and that is not the `whole`.
pub fn row(
    data: &[u8],
    separator: u8,
    whole: bool,
    mut emit: impl FnMut(usize, &[u8]),
) -> Option<Row> {
    let (mut at, mut number) = (0, 0);
    loop {
        if data.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let Some(n) = memchr(b'"', &data[at..]) else {
                    emit(number, &data[at..]);
                    let row = Row { end: data.len(), values: number + 1, unclosed: true };
                    return whole.then_some(row);
                };
                emit(number, &data[at..at + n]);
                at += n + 1;
                match data.get(at) {
                    Some(b'"') => emit(number, b"\""),
                    None if !whole => return None,
                    _ => break,
                }
                at += 1;
            }
        }
        let Some(n) = memchr3(separator, b'\n', b'\r', &data[at..]) else {
            emit(number, &data[at..]);
            let values = if data.is_empty() { 0 } else { number + 1 };
            return whole.then_some(Row { end: data.len(), values, unclosed: false });
        };
        emit(number, &data[at..at + n]);
        at += n + 1;
        let end = match data[at - 1] {
            b'\n' => at,
            b'\r' if data.get(at) == Some(&b'\n') => at + 1,
            b'\r' if at == data.len() && !whole => return None,
            b'\r' => at,
            _ => {
                number += 1;
                continue;
            }
        };
        let blank = matches!(data[0], b'\n' | b'\r');
        return Some(Row { end, values: if blank { 0 } else { number + 1 }, unclosed: false });
    }
}

/// Goes through a row that is too long to be held, to where the next one begins.
#[derive(Debug, Default)]
pub struct Passing {
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// At the beginning of a value.
    #[default]
    Begin,
    /// In one, outside of quotation marks.
    Plain,
    /// Inside.
    Quoted,
    /// Behind a quotation mark in one: the end of it, or half of two that stand for one.
    Mark,
    /// Behind a `\r`, which a `\n` may follow.
    Return,
}

impl Passing {
    /// Where in `data`, which follows what was seen before, the row ends; None if behind it.
    pub fn end(&mut self, data: &[u8], separator: u8) -> Option<usize> {
        for (at, &byte) in data.iter().enumerate() {
            self.state = match (self.state, byte) {
                (State::Return, b'\n') => return Some(at + 1),
                (State::Return, _) => return Some(at),
                (State::Begin | State::Mark, b'"') => State::Quoted,
                (State::Quoted, b'"') => State::Mark,
                (State::Quoted, _) => State::Quoted,
                (_, b'\n') => return Some(at + 1),
                (_, b'\r') => State::Return,
                (_, byte) if byte == separator => State::Begin,
                _ => State::Plain,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(mut data: &[u8]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        while !data.is_empty() {
            let mut values = Vec::new();
            let row = row(data, b',', true, |number, part| {
                values.resize(values.len().max(number + 1), Vec::new());
                values[number].extend_from_slice(part);
            });
            let row = row.unwrap();
            values.truncate(row.values);
            // However it is cut off, a row is whole or not there.
            for end in 0..row.end {
                let short = super::row(&data[..end], b',', false, |_, _| {});
                assert!(short.is_none_or(|short| short.end <= end), "{data:?} {end}");
            }
            // Passed over, in whatever stretches, it ends in the same place.
            for stretch in 1..4 {
                let (mut passing, mut at) = (Passing::default(), 0);
                let end = data.chunks(stretch).find_map(|some| {
                    at += some.len();
                    passing.end(some, b',').map(|end| at - some.len() + end)
                });
                assert_eq!(end.unwrap_or(data.len()), row.end, "{data:?}");
            }
            data = &data[row.end..];
            rows.push(
                values.iter().map(|value| String::from_utf8(value.clone()).unwrap()).collect(),
            );
        }
        rows
    }

    #[test]
    fn rows_and_values() {
        assert_eq!(
            rows(b"a,b\r\n1,\"x, \"\"y\"\"\n\"\n"),
            [vec!["a", "b"], vec!["1", "x, \"y\"\n"]]
        );
        assert_eq!(rows(b"\n\r\n\ra"), [vec![], vec![], vec![], vec!["a"]]);
        assert_eq!(rows(b"a\"b,\"c\"d\"\n,"), [vec!["a\"b", "cd\""], vec!["", ""]]);
        assert_eq!(rows(b"\"\"\n"), [vec![""]]);
        assert!(row(b"\"a\n", b',', true, |_, _| {}).unwrap().unclosed);
        assert_eq!(row(b"\"a\"", b',', false, |_, _| {}), None);
        assert_eq!(row(b"a\r", b',', false, |_, _| {}), None);
    }
}
