//! `tokenizer.json`: the spellings that are read, and each refusal by name.

use serde_json::{Value, json};

use super::{message, small, sorted};
use crate::tokenizer::formats::*;
use crate::tokenizer::spec::{MergeRule, Spec};

/// The small file with the value at `path` (as `/model/type`) replaced.
fn with(path: &str, value: Value) -> crate::Result<Spec> {
    let mut file: Value = serde_json::from_slice(&write_tokenizer_json(&small()).unwrap()).unwrap();
    let (parent, name) = path.rsplit_once('/').unwrap();
    file.pointer_mut(parent).unwrap()[name] = value;
    read_tokenizer_json(file.to_string().as_bytes())
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": use_regex})
}

fn split(pattern: Value, behavior: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert})
}

fn sequence(parts: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": parts})
}

#[test]
fn pre_tokenizers_are_read() {
    let digits = |each| json!({"type": "Digits", "individual_digits": each});
    let regex = |regex: &str| json!({"Regex": regex});
    let llama3 = crate::text::pattern::huggingface_regex("llama3").unwrap();
    for (value, stages) in [
        (byte_level(true), &["gpt2"][..]),
        (byte_level(false), &[r"[\s\S]+"]),
        (json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}), &["gpt2"]),
        (sequence(&[byte_level(true)]), &["gpt2"]),
        (
            sequence(&[sequence(&[split(regex("a+"), "Isolated", false)]), byte_level(false)]),
            &["a+"],
        ),
        (sequence(&[split(regex("a+"), "Isolated", true), byte_level(true)]), &["a+", "gpt2"]),
        (
            sequence(&[digits(true), digits(false), byte_level(true)]),
            &[r"\p{N}", r"\p{N}+", "gpt2"],
        ),
        (
            sequence(&[split(json!({"String": "a.b"}), "Isolated", false), byte_level(false)]),
            &[r"a\.b"],
        ),
        (
            sequence(&[split(json!({"String": "gpt2"}), "Isolated", false), byte_level(false)]),
            &["(?:gpt2)"],
        ),
        (sequence(&[split(regex(llama3), "Isolated", false), byte_level(false)]), &["llama3"]),
        (sequence(&[split(regex(llama3), "Removed", true), byte_level(false)]), &["llama3"]),
    ] {
        assert_eq!(with("/pre_tokenizer", value.clone()).unwrap().pattern, stages, "{value}");
    }
}

#[test]
fn the_rest_may_be_spelled_in_several_ways() {
    let template =
        json!({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}});
    for (path, value) in [
        ("/normalizer", json!({"type": "Sequence", "normalizers": []})),
        ("/post_processor", Value::Null),
        (
            "/post_processor",
            json!({"type": "Sequence", "processors": [byte_level(true), template]}),
        ),
        (
            "/post_processor",
            json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}),
        ),
        ("/decoder", Value::Null),
        ("/decoder", json!({"type": "Sequence", "decoders": [byte_level(true)]})),
        ("/truncation", json!({"max_length": 512})),
        ("/padding", json!({"strategy": "BatchLongest"})),
        ("/model/merges", json!([["t", "h"], ["th", "e"]])),
        ("/model/merges", json!(["t h", ["th", "e"]])),
        ("/model/type", Value::Null),
        ("/model/unk_token", json!("<|endoftext|>")),
        ("/model/dropout", json!(0.0)),
        ("/model/continuing_subword_prefix", json!("")),
        ("/model/end_of_word_suffix", json!("")),
        ("/model/new_setting", json!(false)),
        ("/version", Value::Null),
    ] {
        let spec = with(path, value.clone()).unwrap();
        assert_eq!(sorted(&spec.tokens), sorted(&small().tokens), "{path}: {value}");
        let rest = |spec: Spec| (spec.pattern, spec.merges, spec.specials, spec.ignore_merges);
        assert_eq!(rest(spec), rest(small()), "{path}: {value}");
    }
}

#[test]
fn special_tokens_may_be_outside_the_vocabulary() {
    let token = |id: u32, content: &str| json!([{"id": id, "content": content, "special": false}]);
    let spec = with("/added_tokens", token(900, "new")).unwrap();
    assert_eq!((spec.specials[0].id, spec.specials[0].control), (900, false));
    // "<|endoftext|>" is now an ordinary token that no merge makes.
    assert_eq!(spec.tokens.len(), 259);
    for (id, content, part) in [
        (900, "<|endoftext|>", "has the id 900, but 258 in the vocabulary"),
        (97, "new", "two tokens have the id 97: \"a\" and \"new\""),
        (256, "th", "merge 0 makes or uses the token 256, which is the special token \"th\""),
        (900, "", "the special token 900 is empty"),
    ] {
        let text = message(with("/added_tokens", token(id, content)));
        assert!(text.contains(part), "{text}\ndoes not say\n{part}");
    }
}

#[test]
fn everything_else_is_refused_by_name() {
    let regex = |regex: &str, behavior: &str| {
        sequence(&[split(json!({"Regex": regex}), behavior, false), byte_level(false)])
    };
    let added =
        |name: &str| json!([{"id": 258, "content": "<|endoftext|>", "special": true, name: true}]);
    for (path, value, part) in [
        (
            "/normalizer",
            json!({"type": "NFC"}),
            "normalizer: \"NFC\" is not supported\nhint: a normalizer changes",
        ),
        (
            "/normalizer",
            json!({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}),
            "normalizer.normalizers[0]: \"Lowercase\"",
        ),
        ("/normalizer", json!(7), "normalizer: it has no type"),
        ("/pre_tokenizer", Value::Null, "pre_tokenizer: there is none\nhint: "),
        (
            "/pre_tokenizer",
            json!({"type": "Metaspace"}),
            "pre_tokenizer: \"Metaspace\" is not supported",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "ByteLevel", "add_prefix_space": true}),
            "\"add_prefix_space\" is not supported",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "ByteLevel"}),
            "pre_tokenizer: it has no add_prefix_space",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "ByteLevel", "add_prefix_space": 0}),
            "add_prefix_space is 0, not true or false",
        ),
        ("/pre_tokenizer", json!({"type": "Sequence"}), "a Sequence without pretokenizers"),
        ("/pre_tokenizer", sequence(&[]), "it has no ByteLevel"),
        (
            "/pre_tokenizer",
            sequence(&[byte_level(true), byte_level(true)]),
            "pretokenizers[1]: \"ByteLevel\" comes after ByteLevel",
        ),
        (
            "/pre_tokenizer",
            sequence(&[json!({"type": "Whitespace"}), byte_level(true)]),
            "pretokenizers[0]: \"Whitespace\"",
        ),
        ("/pre_tokenizer", split(json!({"Regex": "a+"}), "Isolated", false), "it has no ByteLevel"),
        (
            "/pre_tokenizer",
            regex("cl100k_base", "Isolated"),
            "pretokenizers[0]: the split pattern \"cl100k_base\" is a name",
        ),
        (
            "/pre_tokenizer",
            split(json!({"Regexp": "a"}), "Isolated", false),
            "neither a Regex nor a String",
        ),
        ("/pre_tokenizer", split(json!({"String": ""}), "Isolated", false), "its pattern is empty"),
        ("/pre_tokenizer", regex("a+", "Removed"), "\"Removed\" is not supported"),
        (
            "/pre_tokenizer",
            regex("a+", "MergedWithPrevious"),
            "\"MergedWithPrevious\" is not supported",
        ),
        ("/pre_tokenizer", regex("a+", "MergedWithNext"), "\"MergedWithNext\" is not supported"),
        ("/pre_tokenizer", regex("a+", "Contiguous"), "\"Contiguous\" is not supported"),
        (
            "/pre_tokenizer",
            regex(r"\p{N}{1,3}+", "Isolated"),
            "has {…}+, which is not possessive there",
        ),
        ("/post_processor", json!({"type": "Other"}), "post_processor: \"Other\" is not supported"),
        ("/decoder", json!({"type": "WordPiece"}), "decoder: \"WordPiece\" is not supported"),
        (
            "/decoder",
            json!({"type": "Sequence", "decoders": [{"type": "Fuse"}]}),
            "decoder.decoders[0]: \"Fuse\"",
        ),
        ("/added_tokens", added("lstrip"), "added_tokens[0]: \"<|endoftext|>\" has lstrip"),
        ("/added_tokens", added("rstrip"), "has rstrip"),
        ("/added_tokens", added("single_word"), "has single_word"),
        (
            "/added_tokens",
            json!([{"id": -1, "content": "x"}]),
            "added_tokens[0]: \"x\" has the id -1",
        ),
        ("/added_tokens", json!([{"id": 1}]), "missing field `content`, at line 1, byte offset "),
        ("/version", json!("2.0"), "version: \"2.0\" is not \"1.0\""),
        ("/model/type", json!("Unigram"), "model.type: \"Unigram\" is not supported"),
        ("/model/dropout", json!(0.1), "model.dropout: 0.1 is not supported\nhint: dropout makes"),
        ("/model/byte_fallback", json!(true), "model.byte_fallback: true is not supported"),
        (
            "/model/continuing_subword_prefix",
            json!("##"),
            "model.continuing_subword_prefix: \"##\"",
        ),
        ("/model/end_of_word_suffix", json!("</w>"), "model.end_of_word_suffix: \"</w>\""),
        ("/model/new_setting", json!(1), "model.new_setting: 1 is not supported"),
        ("/model/merges", json!(["t h", "t"]), "merge 1: \"t\" is not two tokens"),
        ("/model/merges", json!([["t"]]), "merge 0: a merge is of two tokens"),
        ("/model/merges", json!([["t", "h", "e"]]), "merge 0: a merge is of two tokens"),
        ("/model/merges", json!([["t", ""]]), "merge 0: one of the two tokens is empty"),
        ("/model/merges", json!([["t", 1]]), "a token of merge 0"),
        ("/model/merges", json!([7]), "expected merge 0 as"),
        (
            "/model/merges",
            json!(["t h", "h t"]),
            "model.merges[1]: the merge of \"h\" and \"t\" needs the token \"ht\"",
        ),
        ("/model/merges", Value::Null, "expected a list of merges"),
        ("/model/vocab", json!({"中": 1}), "needs the token"),
        ("/model/vocab", json!([["a", 1.0]]), "a vocabulary: an object from token to id"),
        ("/model", json!({"type": "BPE", "vocab": {}}), "model: it has no merges"),
        ("/model", json!({"type": "BPE", "merges": []}), "model: it has no vocab"),
        ("/model", json!([]), "expected a model"),
    ] {
        let text = message(with(path, value.clone()));
        assert!(text.contains(part), "{path}: {value}\n{text}\ndoes not say\n{part}");
    }
}

#[test]
fn merges_may_come_before_the_vocabulary() {
    let data = r#"{"model": {"merges": ["a b"], "vocab": {"ab": 7, "b": 3, "a": 5}},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}"#;
    let MergeRule::List(merges) = read_tokenizer_json(data.as_bytes()).unwrap().merges else {
        panic!()
    };
    assert_eq!((merges[0].left, merges[0].right, merges[0].result), (5, 3, 7));
    let twice = data.replace(r#""vocab""#, r#""merges": [], "vocab""#);
    assert!(message(read_tokenizer_json(twice.as_bytes())).contains("model.merges occurs twice"));
}

#[test]
fn a_pattern_with_another_meaning_in_tokenizers_is_not_written() {
    for regex in [r"\p{N}{1,3}+", "^a", "(?s:.+)"] {
        let mut spec = small();
        spec.pattern = vec![regex.to_owned()];
        assert!(message(write_tokenizer_json(&spec)).contains("would cut otherwise"), "{regex}");
    }
}

#[test]
fn normalized_tokens_are_accepted_only_if_their_order_does_not_matter() {
    let tokens = |pairs: &[(&str, bool)]| {
        let token = |(id, &(text, flag)): (u32, &(&str, bool))| {
            let mut token = json!({"id": id, "content": text});
            token["normalized"] = flag.into();
            token
        };
        with("/added_tokens", (900..).zip(pairs).map(token).collect())
    };
    for pairs in [
        [("<a>", true), ("<b>", false)],
        [("xcd", false), ("cdy", true)],
        [("xcdy", false), ("cd", true)],
        [("xcdy", true), ("cd", true)],
        [("xcdy", false), ("cd", false)],
    ] {
        assert!(tokens(&pairs).is_ok(), "{pairs:?}");
    }
    for pairs in [
        [("xcd", true), ("cdy", false)],
        [("xcdy", true), ("cd", false)],
        [("xcdy", true), ("xc", false)],
        [("xcdy", true), ("dy", false)],
        [("中文", true), ("文", false)],
    ] {
        assert!(message(tokens(&pairs)).contains("is normalized and"), "{pairs:?}");
    }
}
