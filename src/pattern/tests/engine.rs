//! Regular expressions and stages.

use super::scanners::mixture;
use super::*;
use crate::error::Error;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn of(stages: &[&str]) -> Pattern {
    Pattern::new(stages).unwrap()
}

#[test]
fn gaps_are_pieces() {
    assert_eq!(pieces(&of(&[r"\d+"]), b"ab12cd3"), ["ab", "12", "cd", "3"]);
    assert_eq!(pieces(&of(&[r"\d+"]), b"ab"), ["ab"]);
    assert_eq!(pieces(&of(&[r"\d+"]), b""), [""; 0]);
    assert_eq!(pieces(&of(&["x"]), "äxö".as_bytes()), ["ä", "x", "ö"]);
}

#[test]
fn empty_matches_cut() {
    assert_eq!(pieces(&of(&["a*"]), b"baac"), ["b", "aa", "c"]);
    assert_eq!(
        pieces(&of(&["(?=[A-Z])"]), "camelCaseÄText".as_bytes()),
        ["camel", "CaseÄ", "Text"]
    );
    assert_eq!(pieces(&of(&[r"(?=(\d{3})+(?!\d))"]), b"1234567"), ["1", "234", "567"]);
    assert_eq!(pieces(&of(&[""]), "aé".as_bytes()), ["a", "é"]);
}

/// Matches that claim odd places lose nothing and do not panic.
#[test]
fn starts_that_are_reset() {
    for regex in [r"a\Kb", r"(?=ab\K)", r"(?<=a\Kb)", r"(?<=\Kab)c", r"\Gb", r"a(?=b\Kb)"] {
        let Ok(pattern) = Pattern::new(&[regex]) else { continue };
        for text in ["abab", "abbcabc", "baabbbc", "ab"] {
            let found = ends(&pattern, text.as_bytes());
            assert!(found.is_sorted_by(|a, b| a < b), "{regex} {text} {found:?}");
            assert_eq!(found.last(), Some(&text.len()));
        }
    }
    assert_eq!(pieces(&of(&[r"a\Kb"]), b"xabc"), ["xa", "b", "c"]);
}

#[test]
fn stages_cut_the_pieces_of_the_stage_before() {
    let pattern = of(&[r"\p{N}", "cl100k"]);
    assert_eq!(pattern.stages(), [r"\p{N}", "cl100k"]);
    assert_eq!(pieces(&pattern, b"abc  12 's"), ["abc", "  ", "1", "2", " '", "s"]);
    let pattern = of(&["gpt2", "[A-Z]", "o"]);
    assert_eq!(
        pieces(&pattern, b"Who FOO boo"),
        ["W", "h", "o", " ", "F", "O", "O", " b", "o", "o"]
    );
}

#[test]
fn invalid_bytes_stand_apart() {
    assert_eq!(ends(&of(&[r"\w+"]), b"a\xffb\xe2\x80c"), [1, 2, 3, 5, 6]);
    assert_eq!(ends(&of(&["[^a]"]), b"a\xff\xfea"), [1, 2, 3, 4]);
    assert_eq!(ends(&of(&["."]), b"\xed\xa0\x80\xc3\xa9"), [1, 2, 3, 5]);
}

#[test]
fn bad_patterns_are_refused() {
    let refused = |stages: &[&str]| match Pattern::new(stages) {
        Err(Error::Config(report)) => format!("{} {}", report.message, report.hint.unwrap()),
        other => panic!("{other:?}"),
    };
    assert!(refused(&[]).contains("no stage"));
    let message = refused(&["gpt2", "(unclosed"]);
    assert!(message.contains("(unclosed") && message.contains("parenthesis"), "{message}");
    assert!(message.contains("gpt2, cl100k, o200k, llama3, qwen2"), "{message}");
}

/// A spelling of `llama3` that is not known, so that the engine has to do it.
const LLAMA3: &str = r"(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

#[test]
fn the_engine_agrees_with_the_scanner_at_length() {
    assert_eq!(known(LLAMA3), None);
    let text = "Some text's here,\n\n  and 12345 there: \u{3000}你好 \t".repeat(20_000);
    let custom = of(&[LLAMA3]);
    let expected = ends(&pattern("llama3"), text.as_bytes());
    // In more than one step.
    let mut found = vec![];
    let mut from = 0;
    let mut steps = 0;
    while from < text.len() {
        from = custom.scan(text.as_bytes(), from, 1, &mut found).unwrap();
        steps += 1;
    }
    assert_eq!(found, expected);
    assert!(steps > 1);
}

/// A result or a clean error, and soon.
#[test]
fn long_runs_do_not_hang() {
    let started = Instant::now();
    let custom = of(&[LLAMA3]);
    for run in ["a", " ", "1", "!", "A'", "\n", " \u{a0}", "\u{301}"] {
        let text = run.repeat(10_000_000 / run.len());
        for behind in ["", "x"] {
            let text = [&text, behind].concat();
            let mut found = vec![];
            match custom.scan(text.as_bytes(), 0, usize::MAX, &mut found) {
                Ok(end) => {
                    assert_eq!(end, text.len());
                    assert_eq!(found, ends(&pattern("llama3"), text.as_bytes()), "{run:?}");
                }
                Err(Error::Tokenizer(report)) => {
                    assert!(report.message.contains("byte 0"), "{}", report.message);
                    assert!(report.hint.is_some());
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_costly_match_is_an_error_with_its_place() {
    let custom = of(&[r"(?:a|aa)+(?![a!])"]);
    let text = [b"hello ".as_slice(), &b"a".repeat(80), b"!"].concat();
    let mut found = vec![];
    match custom.scan(&text, 0, usize::MAX, &mut found) {
        Err(Error::Tokenizer(report)) => {
            assert!(report.message.contains("at byte 6 "), "{}", report.message)
        }
        other => panic!("{other:?}"),
    }
    // Invalid bytes before it do not shift the place.
    let invalid = [b"\xff\xfe\xfd".as_slice(), &text].concat();
    match custom.scan(&invalid, 0, usize::MAX, &mut found) {
        Err(Error::Tokenizer(report)) => {
            assert!(report.message.contains("at byte 9 "), "{}", report.message);
        }
        other => panic!("{other:?}"),
    }
    // As the second stage, the place is still that in the document.
    match of(&[" ", r"(?:a|aa)+(?![a!])"]).scan(&text, 0, usize::MAX, &mut found) {
        Err(Error::Tokenizer(report)) => {
            assert!(report.message.contains("at byte 6 "), "{}", report.message)
        }
        other => panic!("{other:?}"),
    }
}

/// Each match is fast, but each reads to the end of the text.
#[test]
fn a_quadratic_scan_is_an_error() {
    let custom = of(&["[^\n]*x|."]);
    match custom.scan(&b"a".repeat(300_000), 0, usize::MAX, &mut vec![]) {
        Err(Error::Tokenizer(report)) => {
            assert!(report.message.contains("took longer than 3 s"), "{}", report.message);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_way_to_a_match_is_no_error() {
    let custom = of(&[r"(?=(\d{3})+(?!\d))"]);
    let text = ["x".repeat(3_000_000).as_str(), "1234"].concat();
    let n = text.len();
    assert_eq!(ends(&custom, text.as_bytes()), [n - 3, n]);
}

#[test]
fn named_scanners_are_linear() {
    let started = Instant::now();
    let n = 4_000_000;
    for unit in [
        "a", "A", " ", "\n", " \n", "'", "1", "你A", "A你", "\u{301}A", "\u{301}", "A\u{301}",
        "\u{3000}", "!\n", "/\n", "'s", "\u{ffff}",
    ] {
        let text = unit.repeat(n / unit.len());
        for behind in ["", "x", "\n"] {
            let text = [&text, behind].concat();
            for name in NAMES {
                assert_eq!(ends(&pattern(name), text.as_bytes()).last(), Some(&text.len()));
            }
        }
    }
    // Quadratic would take hours.
    assert!(started.elapsed() < Duration::from_secs(60));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text(text in mixture(40)) {
        static CUSTOM: std::sync::OnceLock<(Pattern, Pattern, Pattern)> = std::sync::OnceLock::new();
        let (custom, named, stages) = CUSTOM.get_or_init(|| {
            (of(&[LLAMA3]), pattern("llama3"), of(&[r"\p{N}", LLAMA3, r"[^\p{L}]"]))
        });
        prop_assert_eq!(ends(custom, &text), ends(named, &text));
        let found = ends(stages, &text);
        prop_assert!(found.is_sorted_by(|a, b| a < b));
        prop_assert_eq!(found.last().copied().unwrap_or(0), text.len());
    }
}
