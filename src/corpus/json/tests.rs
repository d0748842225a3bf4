//! Comparison with `serde_json`, and inputs that it does not accept.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn at(data: &str, names: &[&str]) -> JsonResult<(FieldValue, String)> {
    let mut out = b"before ".to_vec();
    let found = text_at(data.as_bytes(), &path(names), &mut out)?;
    Ok((found, String::from_utf8(out[7..].to_vec()).unwrap()))
}

#[test]
fn finds_text() {
    let text = |data, names: &[&str]| match at(data, names) {
        Ok((FieldValue::Text, text)) => text,
        other => panic!("{data}: {other:?}"),
    };
    assert_eq!(text(r#"{"text": "a"}"#, &["text"]), "a");
    assert_eq!(
        text(r#" {"id":1,"text":"a\n\"\\\/\u00e9\ud83d\ude00","x":[1,{}]} "#, &["text"]),
        "a\n\"\\/é😀"
    ); // fmt: skip
    assert_eq!(text(r#"{"text":"a","text":"b"}"#, &["text"]), "b");
    assert_eq!(text(r#"{"te\u0078t":"a"}"#, &["text"]), "a");
    assert_eq!(text(r#"{"text":"no","a":{"text":"yes"}}"#, &["a", "text"]), "yes");
    // A name with a dot in it comes before a member inside another.
    assert_eq!(text(r#"{"a.text":"yes"}"#, &["a", "text"]), "yes");
    assert_eq!(text(r#"{"a.text":"yes","a":{"text":"no"}}"#, &["a", "text"]), "yes");
    assert_eq!(text(r#"{"a":{"text":"no"},"a.text":"yes"}"#, &["a", "text"]), "yes");
    assert_eq!(text(r#"{"a":{"a.text":"no","text":"yes"}}"#, &["a", "text"]), "yes");
    assert_eq!(
        text(r#"{"t":"\ud800x\ude00\ud83d\ud83d\ude00"}"#, &["t"]),
        "\u{fffd}x\u{fffd}\u{fffd}😀"
    );
    assert_eq!(text(r#"{"n":NaN,"m":-Infinity,"t":""}"#, &["t"]), "");
}

#[test]
fn reports_other_values() {
    let found = |data, names: &[&str]| at(data, names).unwrap().0;
    assert_eq!(found(r#"{"a":{"text":"x"}}"#, &["text"]), FieldValue::Missing);
    assert_eq!(found(r#"{"text":"a","text":null}"#, &["text"]), FieldValue::Null);
    assert_eq!(found(r#"{"text":["a"]}"#, &["text"]), FieldValue::Other("an array"));
    assert_eq!(found(r#"["text"]"#, &["text"]), FieldValue::Other("an array"));
    assert_eq!(found(r#"{"a":{"b":"x"},"a":{}}"#, &["a", "b"]), FieldValue::Missing);
    assert_eq!(found(r#"{"a":{"b":"x"},"a":1}"#, &["a", "b"]), FieldValue::Missing);
    assert_eq!(at(r#"{"a":"x","a":{}}"#, &["a"]).unwrap().1, "");
}

#[test]
fn invalid_json_is_reported() {
    for data in [
        "",
        "{",
        r#"{"text":"a""#,
        r#"{"text":"a"}}"#,
        r#"{"text" "a"}"#,
        r#"{"text":}"#,
        r#"{"text":"a",}"#,
        r#"{text:"a"}"#,
        r#"{"text":"a" "b":1}"#,
        r#"{"text":01}"#,
        r#"{"text":1.}"#,
        r#"{"text":.5}"#,
        r#"{"text":+1}"#,
        r#"{"text":1e}"#,
        r#"{"x":[1,]}"#,
        r#"{"text":"\x"}"#,
        r#"{"text":"\u12g4"}"#,
        r#"{"text":"\u12"#,
        "{\"text\":\"a\nb\"}",
        r#"{"text":tru}"#,
        r#"{"text":"a"} x"#,
        "nul",
        r#"{"text":'a'}"#,
        "[",
        "[1 2]",
    ] {
        // fmt: skip
        let wrong = at(data, &["text"]);
        assert!(wrong.is_err(), "{data}: {wrong:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(at(&deep, &["text"]).unwrap_err().what.contains("too deeply"));
}

/// JSON that is valid or nearly so.
fn json() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"text\"",
        "\"a\"",
        "\"te\\u0078t\"",
        "1",
        "-0.5e+3",
        "null",
        "true",
        " ",
        "\"\\ud83d\\ude00\"",
        "\"x\\n\"",
        "\"é\"",
        "\"",
        "\\",
        "0",
    ]); // fmt: skip
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(prop_oneof!["text", "a", any::<String>()], inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop_oneof![
        3 => value.prop_map(|value| value.to_string()),
        1 => prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat()),
    ]
}

proptest! {
    #[test]
    fn agrees_with_serde(data in json(), nested in any::<bool>(), cut in any::<prop::sample::Index>(), whole in any::<bool>()) {
        let names: &[&str] = if nested { &["a", "text"] } else { &["text"] };
        let mut data = data;
        if !whole && !data.is_empty() {
            let mut end = cut.index(data.len());
            while !data.is_char_boundary(end) {
                end -= 1;
            }
            data.truncate(end);
        }
        let expected = serde_json::from_str::<Value>(&data);
        match (at(&data, names), expected) {
            (Ok((found, text)), Ok(value)) => {
                let pointer = names.iter().try_fold(&value, |value, name| value.get(name));
                match pointer {
                    Some(Value::String(expected)) => {
                        prop_assert_eq!((found, &text), (FieldValue::Text, expected));
                    }
                    _ => prop_assert!(found != FieldValue::Text && text.is_empty(), "{}", data),
                }
            }
            // A number that is too large for serde is still JSON.
            (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("number out of range"), "{data}: {error}"),
            (Err(wrong), Ok(_)) => prop_assert!(false, "{}: {:?}", data, wrong),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut out = Vec::new();
        let _ = text_at(&data, &path(&["text"]), &mut out);
    }
}
