//! `vocab.json` and `merges.txt`: special tokens, and what is refused.

use super::{message, small, special};
use crate::tokenizer::formats::*;
use crate::tokenizer::spec::{MergeRule, Spec};

fn read(vocab: &str, merges: &str, specials: &[(&str, Option<u32>)]) -> crate::Result<Spec> {
    let specials: Vec<_> = specials.iter().map(|(text, id)| (text.to_string(), *id)).collect();
    read_gpt2(vocab.as_bytes(), merges.as_bytes(), &["gpt2".to_owned()], &specials)
}

#[test]
fn entries_that_look_special_are_special() {
    let vocab = r#"{"a": 0, "b": 1, "ab": 2, "<|end|>": 3, "<s>": 4, "<pad>": 5, "<x>": 6,
        "left": 7, "<|中|>": 8, "<|a b|>": 9}"#;
    let spec = read(vocab, "a b", &[]).unwrap();
    let expected = [("<|end|>", 3), ("<s>", 4), ("<pad>", 5), ("<|a b|>", 9), ("<|中|>", 8)];
    assert_eq!(spec.specials, expected.map(|(text, id)| special(text, id)));
    let left: Vec<u32> = spec.tokens.iter().map(|(id, _)| id).collect();
    assert_eq!(left, [0, 1, 2, 6, 7]);
}

#[test]
fn results_of_merges_are_not_special() {
    let vocab = r#"{"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4}"#;
    let spec = read(vocab, "< s\n<s >\n", &[]).unwrap();
    assert_eq!((spec.specials.len(), spec.tokens.len()), (0, 5));
}

#[test]
fn special_tokens_get_ids() {
    let vocab = r#"{"a": 0, "b": 1, "ab": 2, "<|end|>": 7, "<s>": 5}"#;
    let asked = [("<|end|>", None), ("<x>", None), ("<y>", Some(20)), ("<z>", None)];
    let spec = read(vocab, "a b", &asked).unwrap();
    let expected = [("<|end|>", 7), ("<x>", 21), ("<y>", 20), ("<z>", 22)];
    assert_eq!(spec.specials, expected.map(|(text, id)| special(text, id)));
    // Tokens that are not requested stay ordinary.
    assert_eq!(spec.tokens.len(), 4);
}

#[test]
fn merges_may_have_any_line_ends_and_a_header() {
    let vocab = r##"{"a": 0, "b": 1, "ab": 2}"##;
    for merges in
        ["a b", "a b\n", "a b\r\n", "#version: 0.2\na b\n", "#version: 0.2\r\na b\r\n\r\n"]
    {
        let MergeRule::List(list) = read(vocab, merges, &[]).unwrap().merges else { panic!() };
        assert_eq!(list.len(), 1, "{merges:?}");
    }
    // Only the first line is a header.
    let vocab = r##"{"a": 0, "b": 1, "ab": 2, "#version": 3, "#versiona": 4}"##;
    let MergeRule::List(list) = read(vocab, "a b\n#version a\n", &[]).unwrap().merges else {
        panic!()
    };
    assert_eq!(list.len(), 2);
}

#[test]
fn refusals_name_the_position() {
    let vocab = r#"{"a": 0, "b": 1, "ab": 2}"#;
    for (vocab, merges, specials, part) in [
        (
            vocab,
            "#version\n\na c",
            &[][..],
            "line 3: the merge of \"a\" and \"c\" needs the token \"c\"",
        ),
        (vocab, "a b\nb a", &[], "line 2: the merge of \"b\" and \"a\" needs the token \"ba\""),
        (vocab, "a", &[], "line 1: \"a\" is not two tokens"),
        (vocab, "a b c", &[], "line 1: \"a b c\" is not two tokens"),
        (vocab, " b", &[], "line 1: one of the two tokens is empty"),
        (vocab, "a 中", &[], "line 1: the token \"中\" contains '中', which spells no byte"),
        (
            vocab,
            "a b",
            &[("ab", None)],
            "merge 0 makes or uses the token 2, which is the special token \"ab\"",
        ),
        (vocab, "a b", &[("<s>", Some(1))], "two tokens have the id 1: \"b\" and \"<s>\""),
        (vocab, "a b", &[("a", Some(9))], "\"a\" has the id 9, but 0 in the vocabulary"),
        (vocab, "a b", &[("", None)], "the special token 3 is empty"),
        (vocab, "a b", &[("<s>", None), ("<s>", None)], "the special token \"<s>\" occurs twice"),
        (vocab, "a b", &[("<s>", Some(u32::MAX))], "the largest possible is 4294967294"),
        (
            vocab,
            "a b",
            &[("<s>", Some(u32::MAX - 1)), ("<t>", None)],
            "would have the id 4294967295",
        ),
        (r#"{"a": 0, "b": 0}"#, "", &[], "two tokens have the id 0: \"a\" and \"b\""),
        (r#"{"<|x|>": 0, "b": 0}"#, "", &[], "two tokens have the id 0"),
        (r#"{"a": 0, "a": 1}"#, "", &[], "the token \"a\" occurs twice, with the ids 0 and 1"),
        (r#"{"中": 0, "中": 1}"#, "", &[], "the token \"中\" occurs twice"),
        (r#"{"": 0}"#, "", &[], "token 0 is empty"),
        (r#"{"中": 0}"#, "", &[], "the token \"中\" (id 0) contains '中', which spells no byte"),
        (r#"{"a": -1}"#, "", &[], "the token \"a\" has the id -1, which is not a whole number"),
        (r#"{"a": 1.5}"#, "", &[], "has the id 1.5"),
        (r#"{"a": 1e3}"#, "", &[], "has the id 1000.0"),
        (r#"{"a": 4294967295}"#, "", &[], "has the id 4294967295"),
        (r#"{"a": 99999999999999999999999}"#, "", &[], "has the id 1e23"),
        (r#"{"a": "1"}"#, "", &[], "has the id \"1\""),
        ("{\"a\": 0,\n\"b\": null}", "", &[], "at line 2, byte offset 1"),
        (
            "{\"a\": 0,\n\"b\" 1}",
            "",
            &[],
            "malformed JSON: expected `:`, at line 2, byte offset 13",
        ),
        ("[]", "", &[], "a vocabulary: an object from token to id"),
        ("", "", &[], "the file ends too early"),
    ] {
        let text = message(read(vocab, merges, specials));
        assert!(text.contains(part), "{text}\ndoes not say\n{part}");
    }
    let text = message(read_gpt2(b"{\"a\xff\": 0}", b"", &[], &[]));
    assert_eq!(text, "not UTF-8: the byte 0xff at byte offset 3");
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let vocab = r#"{"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "ca": 5}"#;
    assert!(read(vocab, "a b\nab c\nc a", &[]).is_ok());
    for (merges, part) in [
        // Truncated, empty, of another tokenizer.
        (
            "a b\nab c",
            "the vocabulary has 6 tokens and merges.txt 2 merges, which do not belong together: no \
             merge makes \"ca\" (id 5), one of 1 such tokens",
        ),
        ("", "has 6 tokens and merges.txt 0 merges"),
        ("#version: 0.2\n", "makes \"ab\" (id 3), one of 3 such tokens"),
        ("a b\nc a", "makes \"abc\" (id 4)"),
        ("a b\nb c\nc a", "needs the token \"bc\", which is not in the vocabulary"),
    ] {
        let text = message(read(vocab, merges, &[]));
        assert!(text.contains(part), "{text}\ndoes not say\n{part}");
    }
    // Unless they are declared special.
    assert!(read(vocab, "a b\nab c", &[("ca", None)]).is_ok());
}

#[test]
fn tokens_without_merges_that_real_files_have() {
    // Trainers put special tokens first, fairseq pads with words, models add markers.
    let vocab = r#"{"<s>": 0, "ab": 1, "a": 2, "b": 3, "ba": 4, "madeupword0000": 5, "<fim_x>": 6,
        "[CLS]": 7, "</s>": 8, "<a": 9, ">": 10, "<a>": 11, "<": 12}"#;
    let spec = read(vocab, "b a\n< a", &[]).unwrap();
    assert_eq!(spec.tokens.len(), 11);
    // But only a few: CLIP's vocabulary has a second alphabet that only CLIP can use.
    let clip: String =
        (0..65).map(|i| format!(", \"{}!w>\": {}", "q".repeat(i + 1), i + 2)).collect();
    let text = message(read(&format!("{{\"a\": 0, \"b\": 1{clip}}}"), "", &[]));
    assert!(text.contains("67 tokens and merges.txt 0 merges"), "{text}");
}

#[test]
fn unreadable_tokenizers_are_not_written() {
    let mut spec = small();
    spec.tokens.push(300, b"he");
    let text = message(write_gpt2(&spec));
    assert!(text.contains("no merge makes \"he\" (id 300)"), "{text}");
}

#[test]
fn a_special_token_spelled_like_another_is_not_written() {
    for text in ["th", "a", "Ġ"] {
        let mut spec = small();
        spec.specials.push(special(text, 400));
        assert!(message(write_gpt2(&spec)).contains("would both be written as"));
        assert!(message(write_tokenizer_json(&spec)).contains("hint: a special token must not"));
    }
}

#[test]
fn merges_by_rank_never_reach_a_writer() {
    let mut spec = small();
    spec.merges = MergeRule::ByRank;
    let is_bug = |error| matches!(error, Some(crate::Error::Bug(_)));
    assert!(is_bug(write_gpt2(&spec).err()));
    assert!(is_bug(write_tokenizer_json(&spec).err()));
    assert!(is_bug(write_minbpe(&spec).err()));
}

#[test]
fn ignore_merges_must_not_matter() {
    let mut spec = small();
    spec.ignore_merges = true;
    assert!(write_gpt2(&spec).is_ok());
    spec.tokens.push(300, b"alone");
    assert!(message(write_gpt2(&spec)).contains("save a tokenizer.json"));
}
