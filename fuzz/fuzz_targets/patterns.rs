//! Any bytes: a named scanner cuts where its regular expression cuts, and safe cuts are safe.

#![no_main]

use bytemill::internals::pattern::{NAMES, Pattern, tiktoken_regex};
use libfuzzer_sys::fuzz_target;

fn pieces<'t>(pattern: &Pattern, text: &'t [u8]) -> Vec<&'t [u8]> {
    let mut pieces = Vec::new();
    pattern.split(text, |piece| pieces.push(piece)).expect("pieces");
    pieces
}

thread_local! {
    static PATTERNS: Vec<(Pattern, Pattern)> = NAMES
        .iter()
        .map(|name| {
            // In parentheses it is not a known spelling, so the engine runs it.
            let regex = format!("(?:{})", tiktoken_regex(name).expect("a regular expression"));
            (Pattern::new(&[name]).expect("a name"), Pattern::new(&[regex]).expect("a pattern"))
        })
        .collect();
}

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (which, at, text) = input;
    PATTERNS.with(|patterns| {
        let (scanner, regex) = &patterns[usize::from(which) % patterns.len()];
        let whole = pieces(scanner, text);
        assert_eq!(whole, pieces(regex, text));
        assert_eq!(whole.concat(), text);
        assert!(whole.iter().all(|piece| !piece.is_empty()));

        let at = usize::from(at) % (text.len() + 1);
        for cut in [scanner.safe_cut_after(text, at), scanner.safe_cut_before(text, at)] {
            let Some(cut) = cut else { continue };
            let (before, behind) = text.split_at(cut);
            let apart = [pieces(scanner, before), pieces(scanner, behind)].concat();
            assert_eq!(apart, whole);
        }
    });
});
