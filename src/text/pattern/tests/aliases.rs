//! Names that other libraries use, and texts that only look like names.

use super::*;
use crate::base::error::Error;

fn refused(text: &str) -> (String, String) {
    match Pattern::new(&[text]) {
        Err(Error::Config(report)) => (report.message, report.hint.unwrap_or_default()),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn names_of_other_libraries_are_known() {
    for (name, others) in [
        ("gpt2", "gpt2 GPT-2 r50k r50k_base p50k p50k_base p50k_edit"),
        ("cl100k", "cl100k cl100k_base gpt4 gpt-4 gpt-3.5 gpt-3.5-turbo gpt-35-turbo"),
        ("o200k", "o200k o200k_base o200k_harmony gpt4o gpt-4o gpt-4o-mini gpt-4.1 gpt-5 gpt-oss"),
        ("llama3", "llama3 Llama-3 llama-bpe llama3.1 llama-3.2 Llama-3.3"),
        ("qwen2", "qwen2 Qwen2.5 qwen3 Qwen-2.5"),
    ] {
        for other in others.split(' ') {
            assert_eq!(Pattern::new(&[other]).unwrap().stages(), [name], "{other}");
        }
    }
}

#[test]
fn a_text_that_looks_like_a_name_is_not_an_expression() {
    let names =
        ["cl100", "cl100k_bas", "gpt", "foo.bar", "a", "é", "7", "_", "x-y", "qwen3.5", "名"];
    for text in names {
        let (message, hint) = refused(text);
        assert_eq!(message, format!("unknown split pattern {text:?}"));
        assert!(hint.contains("known patterns are gpt2, cl100k, o200k, llama3, qwen2"), "{hint}");
        assert!(hint.contains(&format!("(?:{text})")), "{hint}");
        // In any stage.
        assert!(Pattern::new(&["gpt2", text]).is_err());
        // The workaround in the hint.
        assert!(Pattern::new(&[format!("(?:{text})")]).is_ok());
    }
    for text in [".", "-", "...", r"\w+", "[a]", " ", "a|b", "", "a b", "a+"] {
        assert!(Pattern::new(&[text]).is_ok(), "{text}");
    }
}

#[test]
fn suggestions_are_close() {
    for (text, suggested) in [
        ("cl100k_bas", "did you mean cl100k? "),
        ("gtp2", "did you mean gpt2"),
        ("o200", "did you mean o200k? "),
        ("lama3", "did you mean llama3? "),
        ("tokenizer", "known patterns are"),
    ] {
        let (_, hint) = refused(text);
        assert!(hint.starts_with(suggested), "{text}: {hint}");
    }
    refused(&"x".repeat(1_000_000));
}
