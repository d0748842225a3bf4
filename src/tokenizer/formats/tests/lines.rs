//! Line-based formats: rank files and minbpe models.

use super::{built, message, small, spec_of, special};
use crate::tokenizer::formats::*;
use crate::tokenizer::spec::{MergeRule, Spec};

fn ranks(data: &str, specials: &[(&str, Option<u32>)]) -> crate::Result<Spec> {
    let specials: Vec<_> = specials.iter().map(|(text, id)| (text.to_string(), *id)).collect();
    read_tiktoken(data.as_bytes(), &["cl100k".to_owned()], &specials)
}

#[test]
fn ranks_are_read() {
    let spec = ranks("YQ== 0\r\n\nYg==  1\nYWI= 5", &[("<s>", None), ("<t>", Some(3))]).unwrap();
    let tokens: Vec<_> = spec.tokens.iter().collect();
    assert_eq!(tokens, [(0, &b"a"[..]), (1, b"b"), (5, b"ab")]);
    assert_eq!(spec.specials, [special("<s>", 6), special("<t>", 3)]);
    assert_eq!((spec.merges, spec.ignore_merges), (MergeRule::ByRank, true));
}

#[test]
fn malformed_ranks_are_refused() {
    for (data, part) in [
        ("YQ== 0\nYg==", "line 2 (byte offset 7): \"Yg==\" is not a token and an id"),
        ("YQ== 0 1", "is not a token and an id"),
        ("YQ= 0", "\"YQ=\" is not base64: its length is not a multiple of 4"),
        ("Y*== 0", "\"Y*==\" is not base64, from its byte 1"),
        ("YR== 0", "\"YR==\" is not base64: bits are left over"),
        ("YQ== -1", "\"-1\" is not an id"),
        ("YQ== +1", "\"+1\" is not an id"),
        ("YQ== 1.0", "\"1.0\" is not an id"),
        ("YQ== 4294967295", "\"4294967295\" is not an id"),
        ("YQ== 0\nYQ== 1", "the token \"a\" occurs twice, with the ids 0 and 1"),
        ("YQ== 0\nYg== 0", "two tokens have the id 0: \"a\" and \"b\""),
        ("/w== 0\n/w== 1", "the token b\"\\xff\" occurs twice"),
    ] {
        let text = message(built(ranks(data, &[])));
        assert!(text.contains(part), "{text}\ndoes not say\n{part}");
    }
    assert!(message(ranks("YQ== 0", &[("<s>", Some(0))])).contains("two tokens have the id 0"));
}

#[test]
fn ranks_are_written_only_if_they_imply_the_merges() {
    assert!(write_tiktoken(&small()).is_ok());

    let mut falling = small();
    let MergeRule::List(merges) = &mut falling.merges else { panic!() };
    merges.reverse();
    assert!(message(write_tiktoken(&falling)).contains("do not follow the order of the merges"));

    // By rank, "ab" merges first and then "abc"; the list creates it from "a" and "bc".
    let (a, b, c) = (97, 98, 99);
    let other = spec_of(&[(a, b), (b, c), (a, 257)], true);
    let text = message(write_tiktoken(&other));
    assert!(text.contains("\"abc\" (id 258) is made: by them it is 256 and 99"), "{text}");

    let mut alone = small();
    alone.tokens.push(300, b"alone");
    assert!(message(write_tiktoken(&alone)).contains("no merge makes it"));
    alone.ignore_merges = true;
    assert!(write_tiktoken(&alone).is_ok());
}

const MODEL: &str = "minbpe v1\n\\w+|\\W+\n2\n<|end of text|> 300\n<s> 258\n97 98\n256 99\n";

#[test]
fn models_are_read() {
    for data in [MODEL.to_owned(), MODEL.replace('\n', "\r\n"), MODEL.trim_end().to_owned()] {
        let spec = read_minbpe(data.as_bytes()).unwrap();
        assert_eq!(spec.pattern, [r"\w+|\W+"]);
        assert_eq!(spec.specials, [special("<|end of text|>", 300), special("<s>", 258)]);
        assert_eq!(spec.tokens.get(257), (257, &b"abc"[..]));
    }
    let basic = read_minbpe(b"minbpe v1\n\n0\n").unwrap();
    assert_eq!((basic.pattern[0].as_str(), basic.tokens.len()), (r"[\s\S]+", 256));
    assert_eq!(write_minbpe(&basic).unwrap(), b"minbpe v1\n\n0\n");
}

#[test]
fn a_pattern_of_a_file_is_never_a_name() {
    let text = message(read_minbpe(b"minbpe v1\ngpt2\n0\n"));
    assert!(text.starts_with("line 2: the split pattern \"gpt2\" is a name"), "{text}");
}

#[test]
fn the_patterns_of_minbpe_are_known() {
    let gpt4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
    let gpt2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    for (regex, name) in [(gpt4, "llama3"), (gpt2, "gpt2")] {
        let spec = read_minbpe(format!("minbpe v1\n{regex}\n0\n").as_bytes()).unwrap();
        assert_eq!(spec.pattern, [name]);
    }
}

#[test]
fn malformed_models_are_refused() {
    let long: String =
        (0..40).map(|i| format!("{0} {0}\n", if i == 0 { 97 } else { 255 + i })).collect();
    for (data, part) in [
        ("minbpe v2\n", "line 1 (byte offset 0): \"minbpe v2\" is not \"minbpe v1\""),
        ("minbpe v1\n", "line 2 (byte offset 10): the file ends before the split pattern"),
        ("minbpe v1\n.\n", "line 3 (byte offset 12): the file ends before the number"),
        ("minbpe v1\n.\n-1\n", "\"-1\" is not a number of lines"),
        ("minbpe v1\n.\n9\n<s> 300\n", "line 5 (byte offset 22): the file ends before a special"),
        (
            "minbpe v1\n.\n1\n<s>300\n",
            "line 4 (byte offset 14): \"<s>300\" is not a text and an id",
        ),
        ("minbpe v1\n.\n1\n<s> x\n", "\"<s> x\" is not a text and an id"),
        ("minbpe v1\n.\n1\n 300\n", "the special token 300 is empty"),
        ("minbpe v1\n.\n2\n<s> 300\n<s> 301\n", "the special token \"<s>\" occurs twice"),
        ("minbpe v1\n.\n1\n<s> 97\n", "two tokens have the id 97: \"a\" and \"<s>\""),
        ("minbpe v1\n.\n0\n1\n", "line 4 (byte offset 14): \"1\" is not a merge of two ids"),
        ("minbpe v1\n.\n0\n1 2 3\n", "is not a merge of two ids"),
        ("minbpe v1\n.\n0\n\n1 2\n", "\"\" is not a merge of two ids"),
        (
            "minbpe v1\n.\n0\n97 256\n",
            "the merge that makes 256 uses 256, which is not made before",
        ),
        (
            "minbpe v1\n.\n0\n97 98\n97 98\n",
            "the token \"ab\" occurs twice, with the ids 256 and 257",
        ),
        (&format!("minbpe v1\n.\n0\n{long}"), "take more than 268435456 bytes"),
    ] {
        let text = message(built(read_minbpe(data.as_bytes())));
        assert!(text.contains(part), "{text}\ndoes not say\n{part}");
    }
}

#[test]
fn models_are_written_only_if_their_ids_are_implied() {
    let change = |f: fn(&mut Spec)| {
        let mut spec = small();
        f(&mut spec);
        message(write_minbpe(&spec))
    };
    let gaps = message(write_minbpe(&spec_of(&[], false)));
    assert!(gaps.contains("bytes must have the ids 0 to 255"), "{gaps}");
    for (text, part) in [
        (change(|s| s.tokens.push(300, b"x y")), "259 ordinary tokens, but 256 bytes and 2 merges"),
        (change(|s| s.pattern.push("gpt2".into())), "the pattern has 2 stages"),
        (change(|s| s.pattern = vec![]), "the pattern has 0 stages"),
        (change(|s| s.pattern = vec!["a\nb".into()]), "has a line break"),
        (change(|s| s.pattern = vec!["a ".into()]), "white space at an end"),
        (change(|s| s.specials[0].text = "a\nb".into()), "\"a\\nb\" has a line break"),
        (change(|s| s.specials[0].control = false), "is not a control token"),
    ] {
        assert!(text.contains(part) && text.contains("hint: "), "{text}\ndoes not say\n{part}");
    }
}
