//! The SIMD scanner, at every level of this processor, against the scanner by piece.

use proptest::prelude::*;

use super::ALPHABET;
use crate::base::cpu::Level;
use crate::text::pattern::scanners::Scanner;
use crate::text::pattern::simd::scan;

const SCANNERS: [Scanner; 5] =
    [Scanner::Gpt2, Scanner::Cl100k, Scanner::O200k, Scanner::Llama3, Scanner::Qwen2];

/// The ends of the pieces, one at a time.
fn by_piece(scanner: Scanner, text: &[u8]) -> Vec<usize> {
    let (mut ends, mut at) = (vec![], 0);
    while at < text.len() {
        at = scanner.next_end(text, at);
        ends.push(at);
    }
    ends
}

fn agree(text: &[u8]) {
    for scanner in SCANNERS {
        let expected = by_piece(scanner, text);
        for level in Level::available() {
            let mut ends = vec![];
            scan(scanner, level, text, 0, usize::MAX, &mut ends);
            let shown = String::from_utf8_lossy(text);
            assert_eq!(ends, expected, "{scanner:?} {level:?} {shown:?}");
        }
    }
}

/// Every pair and triple of kinds of characters across the end of a group.
#[test]
fn at_the_end_of_a_group() {
    for filler in
        [&b"a"[..], b" ", b"\n", b".", b"1", b"'", b"a ", "é".as_bytes(), "\u{a0}".as_bytes()]
    {
        for shift in 58..=66 {
            let mut text = filler.repeat(shift / filler.len());
            text.resize(shift, b'x');
            for first in ALPHABET {
                for second in ALPHABET {
                    for third in [&b""[..], b"a", b" ", b"e", b"l", b"\n", b".", "é".as_bytes()] {
                        text.truncate(shift);
                        text.extend_from_slice(first);
                        text.extend_from_slice(second);
                        text.extend_from_slice(third);
                        agree(&text);
                    }
                }
            }
        }
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(ALPHABET.to_vec());
    let mixed = prop_oneof![
        6 => kind.prop_map(<[u8]>::to_vec),
        2 => Just(b"word".to_vec()),
        2 => Just(b" ".to_vec()),
        1 => Just(b"'".to_vec()),
        1 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(mixed, 0..200).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn random_text(text in text()) {
        agree(&text);
    }
}

proptest! {
    #[test]
    fn in_small_steps(text in text(), limit in 1usize..40) {
        for scanner in SCANNERS {
            let expected = by_piece(scanner, &text);
            for level in Level::available() {
                let (mut ends, mut from) = (vec![], 0);
                while from < text.len() {
                    from = scan(scanner, level, &text, from, limit, &mut ends);
                }
                prop_assert_eq!(&ends, &expected);
            }
        }
    }
}

/// Every character, after a letter, after itself and after a number, wherever in a group.
#[test]
fn every_character() {
    let mut text = String::new();
    for start in (0..=u32::from(char::MAX)).step_by(1 << 12) {
        text.clear();
        for c in (start..start + (1 << 12)).filter_map(char::from_u32) {
            text.extend(['a', c, c, '1', c]);
        }
        agree(text.as_bytes());
    }
}
