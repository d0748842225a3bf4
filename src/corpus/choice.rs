//! Which files of a directory or an archive belong to the corpus, by name.
//!
//! These rules exist only here: Python applies them to the files of directories, which it lists as a
//! whole; the readers of archives apply them to each member as they reach its header. Python could not
//! do that without a call for each member (see `tar`).

/// Globs that choose files by name: with any `include`, only files that match one are read; files
/// that match an `exclude` never are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

/// The decision of the globs on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    Included,
    /// There are `include` globs, and none matches.
    NotIncluded,
    Excluded,
    /// No glob decides.
    Open,
}

impl Choice {
    /// `path` is relative to the directory or archive.
    pub fn of(&self, path: &str) -> Chosen {
        let any_matches = |globs: &[String]| globs.iter().any(|glob| matches_path(glob, path));
        if any_matches(&self.exclude) {
            Chosen::Excluded
        } else if self.include.is_empty() {
            Chosen::Open
        } else if any_matches(&self.include) {
            Chosen::Included
        } else {
            Chosen::NotIncluded
        }
    }
}

/// Whether a glob matches a path, or its last component alone.
fn matches_path(glob: &str, path: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let last = path.rsplit('/').next().unwrap_or(path);
    matches(&glob, path) || matches(&glob, last)
}

/// As Python's `fnmatch`: `*` matches any characters including `/`, `?` any one character, `[a-z]`
/// and `[!a-z]` one of a set. Takes O(glob · text) time, since only the last `*` is ever retried.
fn matches(glob: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&'*') {
            g += 1;
            retry = Some((g, t));
        } else if let Some(after) = one(glob, g, text[t]) {
            (g, t) = (after, t + 1);
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            (g, t) = (after_star, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

/// Where the glob continues if its element at `g` matches a character.
fn one(glob: &[char], g: usize, c: char) -> Option<usize> {
    match *glob.get(g)? {
        '?' => Some(g + 1),
        '[' => match set(&glob[g + 1..]) {
            Some((members, length)) => {
                let (negated, members) = match members.split_first() {
                    Some(('!', rest)) => (true, rest),
                    _ => (false, members),
                };
                (holds(members, c) != negated).then_some(g + 1 + length)
            }
            // A bracket that is never closed matches itself.
            None => (c == '[').then_some(g + 1),
        },
        literal => (literal == c).then_some(g + 1),
    }
}

/// The members of a set, and its length with the closing bracket.
fn set(rest: &[char]) -> Option<(&[char], usize)> {
    let first = usize::from(rest.first() == Some(&'!'));
    // A closing bracket that comes first is a member.
    let close = rest.iter().skip(first + 1).position(|&c| c == ']')? + first + 1;
    Some((&rest[..close], close + 1))
}

fn holds(mut members: &[char], c: char) -> bool {
    while let Some((&low, rest)) = members.split_first() {
        members = match rest {
            ['-', high, rest @ ..] => {
                if (low..=*high).contains(&c) {
                    return true;
                }
                rest
            }
            _ if low == c => return true,
            _ => rest,
        };
    }
    false
}

/// Stems of files that accompany the data of a corpus.
const ABOUT_STEMS: [&str; 17] = [
    "readme",
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "notices",
    "changelog",
    "citation",
    "contributing",
    "code_of_conduct",
    "authors",
    "security",
    "checksums",
    "md5sums",
    "sha256sums",
    "gitattributes",
];
/// Their extensions.
const ABOUT_EXTENSIONS: [&str; 10] =
    ["md", "markdown", "txt", "text", "rst", "html", "htm", "cff", "bib", "pdf"];
/// Files that the `datasets` library writes beside its Arrow files.
const DATASETS_FILES: [&str; 4] =
    ["dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"];
/// Extensions of checksums of single files.
const CHECKSUM_EXTENSIONS: [&str; 6] = ["crc", "md5", "sha1", "sha256", "sha512", "asc"];

/// Whether a file describes a corpus rather than belonging to it: `README.md`, `LICENSE`,
/// `_SUCCESS`, checksums.
pub fn is_about(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    let written = extension.is_empty() || ABOUT_EXTENSIONS.contains(&extension);
    // `_SUCCESS`, `_metadata`; not `__init__`.
    let mark = extension.is_empty() && name.starts_with('_') && !name.starts_with("__");
    mark || (written && ABOUT_STEMS.contains(&stem))
        || DATASETS_FILES.contains(&name.as_str())
        || CHECKSUM_EXTENSIONS.contains(&extension)
}

/// Whether a component of the path begins with a dot. Such files are skipped without being counted,
/// in archives as in directories.
pub fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') && !matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        for (glob, path, named) in [
            ("*.py", "a.py", true),
            ("*.py", "src/deep/a.py", true),
            ("*.py", "a.pyc", false),
            ("src/*", "src/deep/a.py", true),
            ("src/*", "other/src/a.py", false),
            ("*/src/*", "other/src/a.py", true),
            ("a.py", "src/a.py", true),
            ("?.txt", "a.txt", true),
            ("?.txt", "ab.txt", false),
            ("[ab].txt", "b.txt", true),
            ("[!ab].txt", "b.txt", false),
            ("[a-c]*", "cat", true),
            ("[a-c]*", "dog", false),
            ("[", "[", true),
            ("[]]", "]", true),
            ("*a*b*c*", "xxaxxbxxc", true),
            ("*a*b*c*", "xxaxxcxxb", false),
            ("*", "", true),
            ("", "a", false),
            ("é?", "éé", true),
        ] {
            assert_eq!(matches_path(glob, path), named, "{glob} {path}");
        }
    }

    #[test]
    fn stars_are_not_exponential() {
        let glob = "*a".repeat(40) + "b";
        assert!(!matches_path(&glob, &"a".repeat(4000)));
    }

    #[test]
    fn exclusion_comes_before_inclusion() {
        let choice = |include: &[&str], exclude: &[&str]| Choice {
            include: include.iter().map(|&s| s.to_owned()).collect(),
            exclude: exclude.iter().map(|&s| s.to_owned()).collect(),
        };
        assert_eq!(choice(&[], &[]).of("a"), Chosen::Open);
        assert_eq!(choice(&["*.py"], &[]).of("a.py"), Chosen::Included);
        assert_eq!(choice(&["*.py"], &[]).of("a"), Chosen::NotIncluded);
        assert_eq!(choice(&["*.py"], &["a*"]).of("a.py"), Chosen::Excluded);
        assert_eq!(choice(&[], &["a*"]).of("b"), Chosen::Open);
    }

    #[test]
    fn what_is_about_a_corpus() {
        for name in [
            "README.md",
            "x/readme",
            "README.txt",
            "LICENSE",
            "LICENSE.txt",
            "_SUCCESS",
            "_metadata",
            "part-0.jsonl.crc",
            "SHA256SUMS",
            "dataset_info.json",
            "CITATION.cff",
        ] {
            assert!(is_about(name), "{name}");
        }
        for name in [
            "a.jsonl",
            "readme.jsonl",
            "reading.md",
            "a.txt",
            "__init__.py",
            "_a.py",
            "notes.txt",
            "wiki_00",
            "license_plates.csv",
        ] {
            assert!(!is_about(name), "{name}");
        }
    }
}
