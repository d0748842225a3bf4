//! Makes the table of character classes that the scanners of `src/text/pattern` read.
//!
//! The scanners must cut every text as the regular expressions they stand for do, so their classes
//! are taken from the tables of the regular expression engine itself (`regex-syntax`) and not from
//! a copy of the Unicode database that could be of another version.
//!
//! The table has two levels: the upper bits of a code point select a page, the lower ones a byte
//! in it. Equal pages are stored once; what is left fits into the level-2 cache many times over.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use regex_syntax::hir::{Class, HirKind};

type Failure = Box<dyn std::error::Error>;

/// Code points per page: 2^8, 140 pages, 40 KB with the index. 2^7 is 2 KB less but leaves few page
/// numbers for later versions of Unicode; smaller pages have more than 256 numbers.
const PAGE_BITS: u32 = 8;

/// The classes, one bit each (`src/text/pattern/classes.rs` has the same numbers, and a test).
const CLASSES: &[(&str, u8)] = &[
    (r"[\p{Lu}\p{Lt}]", 1),
    (r"\p{Ll}", 2),
    (r"[\p{Lm}\p{Lo}]", 4),
    (r"\p{M}", 8),
    (r"\p{N}", 16),
    (r"\s", 32),
];
/// What no line above claims, unassigned code points among them.
const OTHER: u8 = 64;

fn main() -> Result<(), Failure> {
    println!("cargo::rerun-if-changed=build.rs");
    let classes = class_per_code_point()?;
    let page_size = 1 << PAGE_BITS;
    let mut numbers: HashMap<&[u8], usize> = HashMap::new();
    let mut index = Vec::new();
    let mut pages: Vec<u8> = Vec::new();
    for page in classes.chunks(page_size) {
        let next = numbers.len();
        let number = *numbers.entry(page).or_insert(next);
        if number == next {
            pages.extend_from_slice(page);
        }
        index.push(u8::try_from(number).map_err(|_| "more than 256 pages: raise PAGE_BITS")?);
    }
    let mut code = String::new();
    writeln!(code, "/// The version of Unicode that the classes are of.")?;
    writeln!(code, "pub const UNICODE_VERSION: &str = \"{}.0\";", unicode_version()?)?;
    writeln!(code, "const PAGE_BITS: u32 = {PAGE_BITS};")?;
    writeln!(code, "static INDEX: [u8; {}] = {index:?};", index.len())?;
    writeln!(code, "static PAGES: [u8; {}] = {pages:?};", pages.len())?;
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("classes.rs"), code)?;
    Ok(())
}

fn class_per_code_point() -> Result<Vec<u8>, Failure> {
    let mut classes = vec![OTHER; 0x11_0000];
    for (pattern, bit) in CLASSES {
        let hir = regex_syntax::parse(pattern)?;
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
            return Err(format!("{pattern} is not a class").into());
        };
        for range in class.ranges() {
            for code_point in u32::from(range.start())..=u32::from(range.end()) {
                let class = &mut classes[code_point as usize];
                if *class != OTHER {
                    return Err(format!("{code_point:#x} is in two classes").into());
                }
                *class = *bit;
            }
        }
    }
    Ok(classes)
}

/// The newest `\p{Age=…}` that the engine knows: it does not tell its version otherwise.
fn unicode_version() -> Result<String, Failure> {
    (10..=99)
        .rev()
        .flat_map(|major| (0..=9).rev().map(move |minor| format!("{major}.{minor}")))
        .find(|version| regex_syntax::parse(&format!(r"\p{{Age={version}}}")).is_ok())
        .ok_or_else(|| "regex-syntax knows no version of Unicode".into())
}
