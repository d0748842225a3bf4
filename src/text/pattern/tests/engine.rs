//! Regular expressions and stages.

use super::scanners::mixture;
use super::*;
use crate::base::error::Error;
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
    assert_eq!(pieces(&of(&["[x]"]), "äxö".as_bytes()), ["ä", "x", "ö"]);
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

/// Matches whose start is reset lose no text and do not panic.
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
    let pattern = of(&["gpt2", "[A-Z]", "[o]"]);
    assert_eq!(
        pieces(&pattern, b"Who FOO boo"),
        ["W", "h", "o", " ", "F", "O", "O", " b", "o", "o"]
    );
}

#[test]
fn invalid_bytes_are_separate_pieces() {
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
    assert!(refused(&[]).contains("at least one stage"));
    let message = refused(&["gpt2", "(unclosed"]);
    assert!(message.contains("(unclosed") && message.contains("parenthesis"), "{message}");
    assert!(message.contains("gpt2, cl100k, o200k, llama3, qwen2"), "{message}");
}

/// An unknown spelling of `llama3`, so that the engine runs it.
const LLAMA3: &str = r"(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

#[test]
fn the_engine_agrees_with_the_scanner_on_long_text() {
    assert_eq!(known(LLAMA3), None);
    let text = "Some text's here,\n\n  and 12345 there: \u{3000}你好 \t".repeat(20_000);
    let custom = of(&[LLAMA3]);
    let expected = ends(&pattern("llama3"), text.as_bytes());
    // In more than one scan.
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

#[test]
fn long_runs_are_cut() {
    let custom = of(&[LLAMA3]);
    for run in ["a", " ", "1", "!", "A'", "\n", " \u{a0}", "\u{301}"] {
        let text = run.repeat(10_000_000 / run.len());
        for after in ["", "x"] {
            let text = [&text, after].concat();
            let mut found = vec![];
            assert_eq!(
                custom.scan(text.as_bytes(), 0, usize::MAX, &mut found).unwrap(),
                text.len()
            );
            assert_eq!(found, ends(&pattern("llama3"), text.as_bytes()), "{run:?}");
        }
    }
}

/// Takes exponentially many steps on a long run of `a`.
const COSTLY: &str = r"(a+)+\1(?![a!])|(a|aa)+\2!!";

fn refusal(pattern: &Pattern, text: &[u8]) -> String {
    match pattern.scan(text, 0, usize::MAX, &mut vec![]) {
        Err(Error::Tokenizer(report)) => report.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_costly_match_is_an_error_with_its_position() {
    let text = [b"hello ".as_slice(), &b"a".repeat(80), b"!"].concat();
    let message = refusal(&of(&[COSTLY]), &text);
    assert!(message.contains("at byte 6 ") && message.contains("steps"), "{message}");
    // Invalid bytes before it do not shift the position.
    let invalid = [b"\xff\xfe\xfd".as_slice(), &text].concat();
    assert!(refusal(&of(&[COSTLY]), &invalid).contains("at byte 9 "));
    // In the second stage, the position is still that in the document.
    assert!(refusal(&of(&[" ", COSTLY]), &text).contains("at byte 6 "));
}

/// Each match is fast, but each reads to the end of the text.
#[test]
fn a_quadratic_scan_is_an_error() {
    for regex in ["[^\n]*x|.", r"(?=(a+))\1b", r"(a*)\1b", r"(?<=b.*)a", r"(?i)(a+)\1b"] {
        for size in [300_000, 10_000_000] {
            let message = refusal(&of(&[regex]), &b"a".repeat(size));
            assert!(message.contains("steps"), "{regex}: {message}");
        }
    }
}

/// Without back-references, no state is tried twice.
#[test]
fn no_expression_without_back_references_is_exponential() {
    let text = [b"a".repeat(100).as_slice(), b"!"].concat();
    for regex in [
        "(?:a|aa)+(?![a!])|.",
        "(a*)*b|a",
        "(?:a+)+b|[^b]",
        "(?:a|a)*b|[ab]",
        "(?:(?:a?){20}a{20})+b|.",
        "(?=(?:a|aa)+b)|.",
        "(?>(?:a|a?)+b)|.",
    ] {
        let found = ends(&of(&[regex]), &text);
        assert_eq!(found, (1..=text.len()).collect::<Vec<_>>(), "{regex}");
    }
}

#[test]
fn a_stopped_job_stops_a_match() {
    let job = crate::base::job::Job::new(crate::base::job::Phase::Encode, 0);
    let _job = job.on_this_thread();
    let (pattern, text) = (of(&[r"(?=(a+))\1b"]), b"a".repeat(1_000_000));
    job.stop();
    let result = pattern.scan(&text, 0, usize::MAX, &mut vec![]);
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
}

#[test]
fn expressions_without_bounds_are_refused() {
    for (regex, part) in [
        (r"(a)?(?(1)b|c)", "a condition"),
        (r"(a)\g<1>", "a subroutine call"),
        (r"(?~ab)", "an absent operator"),
        (r"(?:(?:a?){4000000000}){4000000000}", "too large"),
        (r"(?:\b|\B){4000000000}", "too large"),
        (r"(?:ab){100000}", "too large"),
        (r"(?:(?:(?:ab){100}){100}){100}", "too large"),
        (r"(a)\2", "group 2"),
    ] {
        match Pattern::new(&[regex]) {
            Err(Error::Config(report)) => assert!(report.message.contains(part), "{report:?}"),
            other => panic!("{regex}: {other:?}"),
        }
    }
}

#[test]
fn a_long_search_for_a_match_is_not_an_error() {
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
        for after in ["", "x", "\n"] {
            let text = [&text, after].concat();
            for name in NAMES {
                assert_eq!(ends(&pattern(name), text.as_bytes()).last(), Some(&text.len()));
            }
        }
    }
    // Quadratic would take hours.
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// The pieces as the engine of `fancy-regex` finds them; None where it gives up, or panics, as it does in
/// some lookbehinds (0.20: "slice index starts at 9 but ends at 8").
fn expected(regex: &fancy_regex::Regex, text: &str) -> Option<Vec<usize>> {
    let mut ends = vec![];
    let (mut last, mut at) = (0, 0);
    while at <= text.len() {
        let found = std::panic::catch_unwind(|| regex.find_from_pos(text, at)).ok()?.ok()?;
        let Some(found) = found else { break };
        let start = found.start().max(last);
        let end = found.end().max(start);
        ends.extend((start > last).then_some(start));
        ends.extend((end > start).then_some(end));
        last = end;
        let size = text[end..].chars().next().map_or(1, char::len_utf8);
        at = if end > start { end } else { end + size };
    }
    ends.extend((last < text.len()).then_some(text.len()));
    Some(ends)
}

fn agrees(regex: &str, texts: &[String]) {
    // Expressions that only one of the two supports are not compared.
    let Ok(other) = fancy_regex::Regex::new(regex) else { return };
    let Ok(ours) = Pattern::new(&[regex]) else { return };
    for text in texts {
        if let Some(expected) = expected(&other, text) {
            assert_eq!(ends(&ours, text.as_bytes()), expected, "{regex} {text:?}");
        }
    }
}

/// All strings of up to five of these.
fn short_texts(alphabet: &[&str]) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut first = 0;
    for _ in 0..5 {
        let shorter = texts[first..].to_vec();
        first = texts.len();
        for text in shorter {
            texts.extend(alphabet.iter().map(|letter| format!("{text}{letter}")));
        }
    }
    texts
}

#[test]
fn the_machine_agrees_with_another_engine() {
    let texts = short_texts(&["a", "b", "K", "é", " ", "\n", "\r"]);
    for regex in [
        r"a+?b|(?i:k)|\s++$|\s+(?!\S)|\s",
        r"(a|b)\1|(?<x>.)\k<x>",
        r"(?i)(k|é|a)\1",
        r"(?<=a|b.|\s)[^a]+|\b.|\B.",
        r"(?<!a+)b|(?<=(?:ab)*)K",
        r"(?m)^a|b$|^$|\R",
        r"(?s).\z|.\Z|\A.",
        r"(?>a|ab)b|(?>a*)b|a*+b|(?:ab?)++a",
        r"(?:a|b|)*?K|(?:a*|b)*K|(?:a?b?){2,3}é",
        r"a{2}|b{1,2}?|K{0}a|é{2,}",
        r"\Ga|a\Kb|(?=a\Kb)",
        r"(?:(a)|b)*\1|(?!a)(?!b).",
        r"(?=(a+))\1b|.",
        r"(?x) a b # note",
        r"\<a|a\>|[[:alpha:]&&[^b]]+|\p{Lu}",
        r"(?:a|(?=b))+|(?:)+b",
    ] {
        agrees(regex, &texts);
    }
}

/// Expressions of everything that the machine supports, except for two constructs that `fancy-regex`
/// handles inconsistently: look-behinds of any length (hand-picked above), and unlimited repetitions of what may be
/// empty, which it ends sometimes as Perl does and sometimes as the `regex` crate does.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        "[ab]",
        "[^a]",
        ".",
        r"\s",
        r"\w",
        "é",
        "(?i:k)",
        "(?i:ab)",
        "ab",
        r"\b",
        "^",
        "$",
        r"\z",
        r"\1",
        "(?m:^)",
        "(?m:$)",
        "",
        r"[\s\S]",
        "(?<=a)",
        r"(?<!\s.)",
        "(?<=(a|b))",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 24, 3, |inner| {
        let few = prop::sample::select(vec!["?", "??", "?+", "{2}", "{1,2}", "{0,2}?", "{2,3}+"]);
        let many = prop::sample::select(vec!["*", "+", "*?", "+?", "*+", "++", "{2,}", "{1,}?"]);
        let around = prop::sample::select(vec!["(", "(?:", "(?=", "(?!", "(?>"]);
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 2..3)
                .prop_map(|ways| format!("(?:{})", ways.join("|"))),
            1 => (inner.clone(), few).prop_map(|(part, n)| format!("(?:{part}){n}")),
            1 => (inner.clone(), many).prop_map(|(part, n)| format!("(?:[abk]{part}){n}")),
            2 => (around, inner).prop_map(|(open, part)| format!("{open}{part})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_expressions(regex in expression(), texts in prop::collection::vec("[abkKé \n]{0,12}", 4)) {
        prop_assume!(!names::is_name(&regex));
        agrees(&regex, &texts);
    }
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
