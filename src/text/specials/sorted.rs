//! Very many special tokens in byte order, where an automaton would take seconds to build.
//!
//! Each position of a text is tried: a bitmap over the first two bytes nearly always rules it out,
//! otherwise the range of tokens that share its prefix is narrowed down byte by byte. That is
//! O(m log n) per position for n tokens of at most m bytes, so this is for short ones. Building takes
//! O(n m log n); memory is the tokens, 12 bytes for each, and 8 kB for the bitmap.

#[derive(Debug)]
pub struct SortedTexts {
    /// All texts end to end, in the order of their bytes, and where each starts.
    bytes: Vec<u8>,
    starts: Vec<usize>,
    /// The index of each text in the list as given.
    numbers: Vec<u32>,
    /// One bit for each two bytes: whether a text begins with them.
    begins: Vec<u64>,
}

impl SortedTexts {
    /// The texts must be distinct and not empty.
    pub fn new<S: AsRef<str>>(texts: &[S]) -> Self {
        let text = |number: u32| texts[number as usize].as_ref().as_bytes();
        let mut numbers: Vec<u32> = (0..texts.len() as u32).collect();
        numbers.sort_unstable_by(|&a, &b| text(a).cmp(text(b)));
        let mut sorted = SortedTexts {
            bytes: Vec::new(),
            starts: vec![0],
            numbers: Vec::new(),
            begins: vec![0; 1 << 10],
        };
        for &number in &numbers {
            let text = text(number);
            sorted.bytes.extend_from_slice(text);
            sorted.starts.push(sorted.bytes.len());
            let second = text.get(1).map_or(0..=255, |&byte| byte..=byte);
            for byte in second {
                let two = usize::from(text[0]) << 8 | usize::from(byte);
                sorted.begins[two / 64] |= 1 << (two % 64);
            }
        }
        sorted.numbers = numbers;
        sorted
    }

    /// The longest text that `rest` begins with: its index and its length.
    #[inline]
    pub fn longest(&self, rest: &[u8]) -> Option<(usize, usize)> {
        if let [first, second, ..] = *rest {
            let two = usize::from(first) << 8 | usize::from(second);
            if self.begins[two / 64] >> (two % 64) & 1 == 0 {
                return None;
            }
        }
        self.narrow_down(rest)
    }

    fn narrow_down(&self, rest: &[u8]) -> Option<(usize, usize)> {
        let text = |i: usize| &self.bytes[self.starts[i]..self.starts[i + 1]];
        let (mut first, mut end) = (0, self.numbers.len());
        let mut found = None;
        for depth in 0.. {
            // All in the range begin with `rest[..depth]`; one that ends there is the first of them.
            if first < end && text(first).len() == depth {
                found = Some((self.numbers[first] as usize, depth));
                first += 1;
            }
            let Some(byte) = rest.get(depth).filter(|_| first < end) else { break };
            let search = |from: usize, is_before: &dyn Fn(u8) -> bool| {
                let (mut low, mut high) = (from, end);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if is_before(text(middle)[depth]) {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                low
            };
            first = search(first, &|other| other < *byte);
            end = search(first, &|other| other <= *byte);
        }
        found
    }
}
