//! The tables, for all of Unicode.

use super::*;

/// Each code point, alone and next to others, is cut as the expression cuts it.
#[test]
fn every_code_point() {
    for name in NAMES {
        let (oracle, pattern) = (Oracle::named(name), pattern(name));
        let mut text = String::new();
        for c in '\0'..=char::MAX {
            text.push_str(&format!("{c} .a{c}b ."));
            // The later planes are mostly ideographs, private use and unassigned: these texts would
            // take half a minute for them.
            if c < '\u{20000}' {
                text.push_str(&format!("{c} .'{c} .a'{c}e {c}{c}\n .{c}A\t.A{c}\n\n{c}1{c}11 ."));
            }
            // One text for many code points, since the engine is slow to start.
            if text.len() > 1 << 16 || c == char::MAX {
                let found = ends(&pattern, text.as_bytes());
                let expected = oracle.ends(text.as_bytes());
                if let Some(at) = (0..found.len()).find(|&i| expected.get(i) != Some(&found[i])) {
                    panic!("{name}: {:?} …", &text[found[at.saturating_sub(3)]..found[at]]);
                }
                text.clear();
            }
        }
    }
}

/// Classes as the engine has them, and the version that the tables claim.
#[test]
fn classes_are_those_of_the_engine() {
    use classes::*;
    let classes = [
        (r"^[\p{Lu}\p{Lt}]$", UPPER),
        (r"^\p{Ll}$", LOWER),
        (r"^[\p{Lm}\p{Lo}]$", CASELESS),
        (r"^\p{M}$", MARK),
        (r"^\p{N}$", NUMBER),
        (r"^\s$", SPACE),
        (r"^[^\p{L}\p{M}\p{N}\s]$", OTHER),
    ];
    for (regex, class) in classes {
        let regex = Regex::new(regex).unwrap();
        let mut bytes = [0; 4];
        for c in '\0'..=char::MAX {
            let text = c.encode_utf8(&mut bytes);
            let expected = regex.is_match(text).unwrap();
            assert_eq!(
                char_at(text.as_bytes(), 0),
                (if expected { class } else { char_at(text.as_bytes(), 0).0 }, text.len())
            );
            assert_eq!(class_at(text.as_bytes(), 0) == class, expected, "{c:?}");
            assert_eq!(valid_class_at(text.as_bytes(), 0), Some(class_at(text.as_bytes(), 0)));
            assert_eq!(
                valid_class_before(text.as_bytes(), text.len()),
                Some(class_at(text.as_bytes(), 0))
            );
        }
    }
    let (major, rest) = UNICODE_VERSION.split_once('.').unwrap();
    let newer = major.parse::<u32>().unwrap() + 1;
    assert!(rest.ends_with(".0"));
    assert!(Regex::new(&format!(r"\p{{Age={major}.0}}")).is_ok());
    assert!(Regex::new(&format!(r"\p{{Age={newer}.0}}")).is_err());
}

/// Well-formed or not: every string of two and three bytes, and the limits of four.
#[test]
fn decoding_is_strict() {
    let edges = [
        0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xed, 0xf0,
        0xf4, 0xf5, 0xff,
    ];
    for a in 128..=255u8 {
        for b in 0..=255u8 {
            for c in edges {
                for d in edges {
                    let text = [a, b, c, d];
                    let first = text.utf8_chunks().next().unwrap();
                    let size = first.valid().chars().next().map_or(1, char::len_utf8);
                    let (class, found) = classes::char_at(&text, 0);
                    assert_eq!(found, size, "{text:x?}");
                    if size == 1 {
                        assert_eq!(class, classes::OTHER);
                    }
                    for cut in 1..4 {
                        let text = &text[..cut];
                        assert_eq!(
                            classes::valid_class_at(text, 0).is_some(),
                            cut >= size && size > 1
                        );
                    }
                }
            }
        }
    }
}
