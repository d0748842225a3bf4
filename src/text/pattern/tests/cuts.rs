//! Safe cuts: the parts, scanned separately, have the pieces of the whole.

use super::scanners::mixture;
use super::*;
use proptest::prelude::*;

/// All safe cuts of a text, searched from both ends.
fn safe_cuts(pattern: &Pattern, text: &[u8]) -> Vec<usize> {
    let mut forwards = vec![];
    let mut from = 0;
    while let Some(at) = pattern.safe_cut_after(text, from) {
        assert!(at >= from && at > 0 && at < text.len());
        forwards.push(at);
        from = at + 1;
    }
    let mut backwards = vec![];
    let mut upto = usize::MAX;
    while let Some(at) = pattern.safe_cut_before(text, upto) {
        assert!(at <= upto && at > 0 && at < text.len());
        backwards.push(at);
        upto = at - 1;
    }
    backwards.reverse();
    assert_eq!(forwards, backwards);
    forwards
}

/// The ends of the pieces of a text whose parts are scanned separately.
fn scan_separately(pattern: &Pattern, text: &[u8], cuts: &[usize]) -> Vec<usize> {
    let mut found = vec![];
    let mut start = 0;
    for &cut in cuts.iter().chain([&text.len()]) {
        found.extend(ends(pattern, &text[start..cut]).iter().map(|end| start + end));
        start = cut;
    }
    found
}

fn check(text: &[u8], before: &[u8], after: &[u8]) {
    for name in NAMES {
        let pattern = pattern(name);
        let cuts = safe_cuts(&pattern, text);
        let whole = ends(&pattern, text);
        for &cut in &cuts {
            assert_eq!(
                scan_separately(&pattern, text, &[cut]),
                whole,
                "{name} {} {cut}",
                text.escape_ascii()
            );
        }
        assert_eq!(scan_separately(&pattern, text, &cuts), whole, "{name} {}", text.escape_ascii());
        // Surrounding text changes nothing, not even the rest of a character.
        let around = [before, text, after].concat();
        let cuts: Vec<usize> = cuts.iter().map(|cut| cut + before.len()).collect();
        let whole = ends(&pattern, &around);
        assert_eq!(
            scan_separately(&pattern, &around, &cuts),
            whole,
            "{name} {}",
            around.escape_ascii()
        );
    }
}

/// Cut inside a piece, the parts have the pieces of the whole except for that one.
fn check_inside(text: &[u8]) {
    for name in NAMES {
        let pattern = pattern(name);
        let whole = ends(&pattern, text);
        let all: Vec<usize> = pattern.insides(text, 1).collect();
        assert!(!all.iter().any(|at| whole.contains(at)), "{name} {}", text.escape_ascii());
        for from in 1..text.len() {
            let next = all.iter().copied().find(|&at| at >= from);
            assert_eq!(pattern.insides(text, from).next(), next);
        }
        let (mut found, mut start) = (vec![], 0);
        // Whatever follows, and from one such position to the next.
        while let Some(at) = pattern.insides(&text[start..], 1).next().map(|at| start + at) {
            assert!(!whole.contains(&at), "{name} {} {at}", text.escape_ascii());
            found.extend(ends(&pattern, &text[start..at]).iter().map(|end| start + end));
            assert_eq!(found.pop(), Some(at));
            start = at;
        }
        found.extend(ends(&pattern, &text[start..]).iter().map(|end| start + end));
        assert_eq!(found, whole, "{name} {}", text.escape_ascii());
    }
}

#[test]
fn long_runs_can_be_cut_inside() {
    for (unit, names) in [
        ("a", NAMES),
        ("ß", NAMES),
        ("-", NAMES),
        ("#!", NAMES),
        (" ", NAMES),
        ("A", &["gpt2", "cl100k", "llama3", "qwen2"]),
        ("東", &["gpt2", "cl100k", "llama3", "qwen2"]),
        ("1", &["gpt2"]),
        ("'", &[]),
        ("/", &[]),
        ("\n", &[]),
        ("\u{301}", &[]),
    ] {
        for name in NAMES {
            let text = unit.repeat(20);
            let n = pattern(name).insides(text.as_bytes(), 1).count();
            assert_eq!(n > 0, names.contains(name), "{name} {unit:?}");
            check_inside(text.as_bytes());
        }
    }
    let spaces = |before: &str| [before, &" ".repeat(12)].concat();
    for (before, known) in [("x", true), ("\n", false), ("\t", false), ("\u{a0}", false)] {
        let n = pattern("cl100k").insides(spaces(before).as_bytes(), 1).count();
        assert_eq!(n > 0, known, "{before:?}");
    }
    assert_eq!(Pattern::new(&[r"\w+"]).unwrap().insides(&[b'a'; 20], 1).count(), 0);
}

/// Regression: each position searched for the start of its run.
#[test]
fn long_runs_of_spaces_take_linear_time() {
    let mut text = vec![b' '; 1 << 20];
    assert_eq!(pattern("cl100k").insides(&text, 4).count(), text.len() - 7);
    text[0] = b'\n';
    assert_eq!(pattern("cl100k").insides(&text, 1).next(), None);
    // In the next run, another character decides.
    text[1 << 19] = b'x';
    assert_eq!(pattern("cl100k").insides(&text, 1).next(), Some((1 << 19) + 5));
}

/// Runs, with what may come before and after them.
fn runs() -> impl Strategy<Value = Vec<u8>> {
    let unit = prop::sample::select(ALPHABET).prop_map(<[u8]>::to_vec);
    let run = (prop_oneof![unit, mixture(3)], 1usize..14).prop_map(|(unit, n)| unit.repeat(n));
    prop::collection::vec(run, 1..8).prop_map(|runs| runs.concat())
}

#[test]
fn every_pair_with_every_context() {
    for a in ALPHABET {
        for b in ALPHABET {
            let text = [*a, *b].concat();
            for around in ALPHABET {
                check(&text, around, around);
            }
        }
    }
}

#[test]
fn common_text_has_cuts() {
    for name in NAMES {
        let pattern = pattern(name);
        assert_eq!(safe_cuts(&pattern, b"one two\tthree.\nfour, 5 6."), [3, 7, 13, 19, 20, 22, 24]);
        assert_eq!(safe_cuts(&pattern, "你好。世界".as_bytes()), [6]);
        assert!(safe_cuts(&pattern, b"don't").is_empty());
        assert!(safe_cuts(&pattern, b"").is_empty());
        assert!(safe_cuts(&pattern, b" ").is_empty());
        assert_eq!(pattern.safe_cut_before(b"a b", 0), None);
        assert_eq!(pattern.safe_cut_after(b"a b", 7), None);
        // The last character is truncated: it may become any character.
        assert!(safe_cuts(&pattern, b"a\xe2\x80").is_empty());
        assert_eq!(safe_cuts(&pattern, b"a\xe2\x80\x9c"), [1]);
    }
    let custom = Pattern::new(&[r"\w+"]).unwrap();
    assert_eq!(custom.safe_cut_after(b"a b", 0), None);
    assert_eq!(custom.safe_cut_before(b"a b", 2), None);
    assert_eq!(Pattern::new(&["gpt2", "gpt2"]).unwrap().safe_cut_after(b"a b", 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_cut_inside(text in runs()) {
        check_inside(&text);
    }

    #[test]
    fn random_text(text in mixture(30), before in mixture(4), after in mixture(4)) {
        check(&text, &before, &after);
    }

    #[test]
    fn random_bytes(text in prop::collection::vec(any::<u8>(), 0..40), before in mixture(4), after in mixture(4)) {
        check(&text, &before, &after);
    }

    #[test]
    fn random_unicode(text in any::<String>(), before in any::<String>(), after in any::<String>()) {
        check(text.as_bytes(), before.as_bytes(), after.as_bytes());
    }
}
