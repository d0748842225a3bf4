//! Exhaustive short strings, hand-picked strings, random strings.

use super::*;
use proptest::prelude::*;

/// All strings of up to `length` letters of `alphabet`.
fn exhaust(names: &[&str], alphabet: &[&str], length: u32) {
    let alphabet: Vec<&[u8]> =
        alphabet.iter().map(|s| if *s == "\\xff" { &b"\xff"[..] } else { s.as_bytes() }).collect();
    for name in names {
        let (oracle, pattern) = (Oracle::named(name), pattern(name));
        let mut text = vec![];
        let mut found = vec![];
        for length in 1..=length {
            for number in 0..alphabet.len().pow(length) {
                text.clear();
                let mut rest = number;
                for _ in 0..length {
                    text.extend_from_slice(alphabet[rest % alphabet.len()]);
                    rest /= alphabet.len();
                }
                found.clear();
                pattern.scan(&text, 0, usize::MAX, &mut found).unwrap();
                if found != oracle.ends(&text) {
                    panic!("{name}: {:?}: {:?}", text.escape_ascii().to_string(), found);
                }
            }
        }
    }
}

#[test]
fn every_short_string_of_all_kinds() {
    let alphabet = [
        "a", "S", "É", "ǅ", "ʰ", "你", "\u{301}", "7", "٣", "'", "ſ", " ", "\t", "\r", "\n",
        "\u{a0}", "\u{2028}", ".", "/", "😀", "\\xff", "\u{378}",
    ];
    exhaust(NAMES, &alphabet, 4);
    let fewer = ["a", "s", "A", "你", "\u{301}", "7", "'", " ", "\t", "\n", ".", "/", "\\xff"];
    exhaust(NAMES, &fewer, 5);
}

#[test]
fn every_string_of_contractions() {
    exhaust(NAMES, &["'", "s", "L", "l", "e", "V", "ſ", " "], 6);
}

#[test]
fn every_string_of_white_space() {
    exhaust(NAMES, &[" ", "\t", "\n", "\r", "\u{3000}", "a", ".", "1"], 6);
    exhaust(NAMES, &[" ", "\n", "\u{85}", "a", "!"], 7);
}

#[test]
fn every_string_of_cases() {
    exhaust(&["o200k"], &["a", "A", "ǅ", "你", "\u{301}", "'", "s", " "], 6);
    exhaust(&["o200k"], &["a", "A", "ʰ", "\u{301}", "."], 8);
}

#[test]
fn every_string_of_symbols_and_numbers() {
    exhaust(NAMES, &["1", "½", ".", "/", "\n", " ", "\\xff", "a"], 6);
}

/// Strings that have exposed bugs in other scanners.
const TRICKY: &[&str] = &[
    "",
    "'ll've",
    "I'LL",
    "I'll've 'RE'D",
    "\t'data'",
    "\n'modular",
    " 'tis",
    "''s",
    "!'s",
    "x''ll",
    "x\u{85}y",
    " \u{a0} a",
    "\u{a0}a",
    "a\n  ",
    "a \n",
    "a\n \n ",
    "\n\n a",
    "  \n\n\t\tb",
    "\r\n\r\n",
    "\r\r\n x",
    "a\u{c}b",
    "\u{c}\u{c}b",
    "\u{2028}\u{2029}a",
    "\u{2028}a",
    "12345678",
    "1 23 4567",
    "a1b22c333d4444",
    "١٢٣٤",
    "Ⅷ½²",
    "!!!\n\n/ x",
    "//\n//\r/a",
    "/\n/",
    "!\u{301}a",
    "\u{301}",
    "\u{301}\u{301}",
    "\u{301}A",
    "\u{301}AB'S",
    "\u{301}'s",
    " \u{301}ABc",
    "a\u{301}b",
    "AAAbbb",
    "AAA",
    "你AAA",
    "你AAAb",
    "AA你AA你AA",
    "camelCaseHTMLParser",
    "HTML's",
    "HTML'Sx",
    "ǅa",
    "aǅ",
    "É'T",
    "'ſ",
    "a'ſ",
    "A'ſa",
    "'ſe",
    "it's",
    "it’s",
    "K'K",
    "\u{378}\u{378}a",
    "\u{ffff}",
    "😀👍🏽 x",
    "👨‍👩‍👧",
    "  leading",
    "trailing  ",
    "tab\tx",
    "\t\tx",
    " \t x",
    "\u{feff}bom",
    "zero\u{200b}width",
    "स्त्री",
    "ภาษาไทย",
    "한국어 텍스트",
    "a\0b",
    "\u{1f}a",
    "end.\n",
    "end.\n\n",
    "f(x)\n\n\ty",
    "\u{10ffff}",
];

#[test]
fn tricky_strings() {
    for name in NAMES {
        let (oracle, pattern) = (Oracle::named(name), pattern(name));
        for text in TRICKY {
            assert_eq!(
                ends(&pattern, text.as_bytes()),
                oracle.ends(text.as_bytes()),
                "{name} {text:?}"
            );
        }
        // And in pairs.
        for (a, b) in TRICKY.iter().flat_map(|a| TRICKY.iter().map(move |b| (a, b))) {
            let text = [*a, *b].concat();
            assert_eq!(
                ends(&pattern, text.as_bytes()),
                oracle.ends(text.as_bytes()),
                "{name} {text:?}"
            );
        }
    }
}

#[test]
fn known_pieces() {
    let check = |name: &str, text: &str, expected: &[&str]| {
        assert_eq!(pieces(&pattern(name), text.as_bytes()), expected, "{name} {text:?}");
    };
    check(
        "gpt2",
        "I'll see  you\n\n at 12345",
        &["I", "'ll", " see", " ", " you", "\n\n", " at", " 12345"],
    );
    check("cl100k", "I'LL see\n\n  12345", &["I", "'LL", " see", "\n\n", " ", " ", "123", "45"]);
    check("cl100k", "a \n ", &["a", " \n "]);
    check("llama3", "a \n ", &["a", " \n", " "]);
    check("qwen2", "x 12", &["x", " ", "1", "2"]);
    check("o200k", "camelCaseHTML's //\n/x", &["camel", "Case", "HTML's", " //\n/", "x"]);
}

#[test]
fn invalid_bytes_are_characters() {
    // A lone continuation byte, a surrogate, an overlong form, a cut-off sequence, F5 and above.
    let texts: &[&[u8]] = &[
        b"a\x80b",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x8f\xbf\xbf",
        b"x \xf0\x9f\x98",
        b"\xf5\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xff\xfe",
        b"\xe4\xbd\xe4\xbd\xa0",
        b" \xffs's\xff's",
        b"\xc2",
        b"\xc2a",
        b"\xf0\x90\x80",
        b"'\xc5",
        b"'\xc5\xbf\xc5",
    ];
    for name in NAMES {
        let (oracle, pattern) = (Oracle::named(name), pattern(name));
        for text in texts {
            assert_eq!(ends(&pattern, text), oracle.ends(text), "{name} {}", text.escape_ascii());
        }
    }
}

#[test]
fn every_spelling_is_the_pattern() {
    for name in NAMES {
        assert_eq!(known(name), Some(*name));
        let pattern = pattern(name);
        let mut n_differing = 0;
        for (spelling, n_changes) in names::spellings(name) {
            assert_eq!(known(&spelling), Some(*name), "{spelling}");
            assert_eq!(Pattern::new(&[&spelling]).unwrap().stages(), [*name]);
            // The parts are independent: one other spelling at a time is enough.
            if n_changes > 1 {
                continue;
            }
            n_differing += n_changes;
            let oracle = Oracle::new(&spelling);
            for text in TRICKY {
                assert_eq!(
                    ends(&pattern, text.as_bytes()),
                    oracle.ends(text.as_bytes()),
                    "{spelling}"
                );
            }
        }
        assert!(n_differing > 0);
        assert_eq!(known(tiktoken_regex(name).unwrap()), Some(*name));
        assert_eq!(known(huggingface_regex(name).unwrap()), Some(*name));
    }
}

#[test]
fn other_expressions_have_no_name() {
    for text in [
        "",
        "gpt",
        r"\s+",
        "|",
        r"'(?:[sdmt]|ll|ve|re)|",
        // The run would be possessive, which has another meaning.
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s++(?!\S)|\s+",
        // Ends at a line break, where `$` is the end of a line.
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+$|\s+(?!\S)|\s+",
    ] {
        assert_eq!(known(text), None, "{text}");
    }
    assert_eq!(tiktoken_regex("gpt"), None);
    assert_eq!(huggingface_regex("gpt"), None);
}

/// Random strings of the alphabet of all kinds.
pub fn mixture(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(ALPHABET), 0..length)
        .prop_map(|parts| parts.concat())
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        mixture(40),
        any::<String>().prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..60),
    ]
}

fn patterns() -> &'static [(&'static str, Pattern, Oracle, Oracle)] {
    static ALL: std::sync::OnceLock<Vec<(&str, Pattern, Oracle, Oracle)>> =
        std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let both = |name: &&'static str| {
            let other = Oracle::new(huggingface_regex(name).unwrap());
            (*name, pattern(name), Oracle::named(name), other)
        };
        NAMES.iter().map(both).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text(text in any_text()) {
        for (name, pattern, oracle, other) in patterns() {
            let found = ends(pattern, &text);
            prop_assert_eq!(&found, &oracle.ends(&text), "{}", name);
            prop_assert_eq!(&found, &other.ends(&text), "{}", name);
            let mut joined = vec![];
            pattern.split(&text, |piece| { assert!(!piece.is_empty()); joined.extend_from_slice(piece) }).unwrap();
            prop_assert_eq!(&joined, &text);
        }
    }

    #[test]
    fn in_steps(text in any_text(), limit in 1usize..5) {
        for (_, pattern, _, _) in patterns() {
            let mut found = vec![];
            let mut from = 0;
            while from < text.len() {
                let before = found.len();
                from = pattern.scan(&text, from, limit, &mut found).unwrap();
                prop_assert_eq!(found.last(), Some(&from));
                prop_assert!(found.len() - before >= limit || from == text.len());
            }
            prop_assert_eq!(found, ends(pattern, &text));
        }
    }
}
