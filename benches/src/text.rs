//! Generated text for benchmarks: always the same, of a few kinds, with word counts that fall as
//! in real text.

/// A pseudorandom generator (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number below `n`; small ones are common: the `k`th about one time in `k`.
    pub fn zipf(&mut self, n: usize) -> usize {
        let u = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((n as f64).powf(u) as usize).min(n) - 1
    }
}

/// A kind of text.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Lower-case words with spaces, punctuation and line ends.
    Prose,
    /// Indented lines of names, digits and symbols.
    Code,
    /// Chinese characters, hardly a space.
    Chinese,
}

impl Kind {
    /// All of them, with names.
    pub const ALL: [(&'static str, Kind); 3] =
        [("prose", Kind::Prose), ("code", Kind::Code), ("chinese", Kind::Chinese)];
}

/// About `size` bytes of text.
pub fn text(kind: Kind, size: usize) -> String {
    let mut random = Random(kind as u64 + 1);
    let words: Vec<String> = (0..30_000).map(|_| word(kind, &mut random)).collect();
    let mut text = String::with_capacity(size + 64);
    while text.len() < size {
        text.push_str(&words[random.zipf(words.len())]);
        match (kind, random.below(20)) {
            (Kind::Prose, 0) => text.push_str(".\n"),
            (Kind::Prose, 1) => text.push_str(", "),
            (Kind::Prose, _) => text.push(' '),
            (Kind::Code, 0..=3) => {
                text.push('\n');
                text.push_str(&"    ".repeat(random.below(4)));
            }
            (Kind::Code, 4..=6) => text.push_str("(self, "),
            (Kind::Code, 7) => text.push_str(" = 0x1f"),
            (Kind::Code, 8..=11) => text.push('_'),
            (Kind::Code, _) => text.push_str([".", " ", ") ", "["][random.below(4)]),
            (Kind::Chinese, 0) => text.push('。'),
            (Kind::Chinese, 1) => text.push('，'),
            (Kind::Chinese, _) => {}
        }
    }
    text
}

fn word(kind: Kind, random: &mut Random) -> String {
    let letters: Vec<char> = match kind {
        Kind::Chinese => ('\u{4e00}'..'\u{5a00}').collect(),
        _ => "etaoinshrdlucmfwypvbgkqjxz".chars().collect(),
    };
    let length = if matches!(kind, Kind::Chinese) { 1 } else { 2 } + random.zipf(10);
    (0..length).map(|_| letters[random.zipf(letters.len())]).collect()
}
