//! Causal attention with rotary positions, forward and back.
//!
//! One head of keys and values of one sample at a time, with the heads of queries that share it:
//! what it needs is copied into a thread's own memory, turned by its positions on the way and laid
//! out for [`product`], and gradients are turned back on the way out. So queries and keys are never
//! written turned, and scores never leave the caches. Nothing beyond the diagonal is computed but
//! what is left of a tile.

use std::cell::RefCell;

use crate::error::{Error, Result};
use crate::lanes::{Kernel, Lanes, Level, exp};

use super::rows::{exp_below, largest, sum3};
use super::tile::{LANES, Left, ROWS, Rows, product};
use crate::threads::{Shared, Threads, each};

/// Keys in a panel: all their first numbers, then all their second ones, and so on.
const PANEL: usize = 32;
/// Queries that the way back takes at a time.
const BLOCK: usize = 64;

/// The shape of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Samples.
    pub n_samples: usize,
    /// Tokens of a sample.
    pub n_tokens: usize,
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
}

/// Cosines and sines of positions.
pub type Angles<'a> = (&'a [f32], &'a [f32]);

/// What goes in: (samples, tokens, heads · d_head) each, and the cosines and sines, (tokens or more,
/// d_head / 2), of the positions if there are any.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Not turned yet.
    pub query: &'a [f32],
    /// Not turned yet.
    pub key: &'a [f32],
    /// Nobody turns these.
    pub value: &'a [f32],
    /// Cosines and sines.
    pub rotation: Option<Angles<'a>>,
}

/// The way of a sample's head through a tensor: row t is at `start + t · stride`.
#[derive(Clone, Copy)]
struct Track {
    start: usize,
    stride: usize,
}

impl Shape {
    fn check(&self, inputs: &Inputs) -> Result<()> {
        let &Shape { n_samples, n_tokens, n_heads, n_kv_heads, d_head } = self;
        let sizes = || {
            let rows = n_samples.checked_mul(n_tokens)?;
            let wide = rows.checked_mul(n_heads.checked_mul(d_head)?)?;
            Some((wide, rows * n_kv_heads.checked_mul(d_head)?, n_tokens * (d_head / 2)))
        };
        let heads = n_kv_heads > 0 && d_head > 0 && n_heads.is_multiple_of(n_kv_heads);
        let fits = heads
            && sizes().is_some_and(|(wide, narrow, angles)| {
                inputs.query.len() == wide
                    && inputs.key.len() == narrow
                    && inputs.value.len() == narrow
                    && inputs.rotation.is_none_or(|(cos, sin)| {
                        d_head.is_multiple_of(2) && cos.len().min(sin.len()) >= angles
                    })
            });
        if fits { Ok(()) } else { Err(Error::input("these are not the arrays of an attention")) }
    }

    fn track(&self, sample: usize, head: usize, n_heads: usize) -> Track {
        let stride = n_heads * self.d_head;
        Track { start: sample * self.n_tokens * stride + head * self.d_head, stride }
    }

    /// Of a row in a thread's memory: as wide as a head, and a whole number of registers.
    fn width(&self) -> usize {
        self.d_head.next_multiple_of(LANES)
    }

    /// Of a row of scores.
    fn reach(&self) -> usize {
        self.n_tokens.next_multiple_of(BLOCK)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.d_head as f32).sqrt()
    }

    /// Does `work` for every head of keys and values of every sample.
    ///
    /// If there are samples enough for all threads, one has all heads of a sample: [`pack`] then
    /// brings the next one near.
    fn each(&self, threads: &dyn Threads, work: impl Fn(usize, usize) + Sync) -> Result<()> {
        if self.n_samples >= 4 * threads.n() {
            return each(threads, self.n_samples, |sample| {
                (0..self.n_kv_heads).for_each(|head| work(sample, head));
            });
        }
        each(threads, self.n_samples * self.n_kv_heads, |task| {
            work(task / self.n_kv_heads, task % self.n_kv_heads);
        })
    }
}

// --- a thread's memory -------------------------------------------------------------------------

/// One cache line, so that no register is loaded from two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    static MEMORY: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Parts of a thread's memory, of the sizes asked for, each from the start of a line on. What is in
/// them is what was left there.
fn with_memory<const N: usize>(sizes: [usize; N], work: impl FnOnce([&mut [f32]; N])) {
    let lines = sizes.map(|size| size.div_ceil(16));
    MEMORY.with_borrow_mut(|memory| {
        let needed = lines.iter().sum();
        if memory.len() < needed {
            memory.resize(needed, Line([0.0; 16]));
        }
        let mut rest = &mut memory[..];
        work(lines.map(|n| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(n);
            rest = behind;
            // SAFETY: a line is 16 numbers and nothing else.
            unsafe { std::slice::from_raw_parts_mut(part.as_mut_ptr().cast(), n * 16) }
        }));
    });
}

/// Copies rows of a head, turned by their positions and times `scale`, to rows
/// that are `width` numbers apart; zeros behind them, and in rows of tokens that are not.
#[inline(always)]
fn pack<L: Lanes>(
    (from, track): (&[f32], Track),
    (first, n, n_tokens): (usize, usize, usize),
    d_head: usize,
    (rotation, scale): (Option<Angles>, f32),
    (to, width): (&mut [f32], usize),
) {
    for (i, to) in to.chunks_exact_mut(width).take(n).enumerate() {
        let token = first + i;
        if token >= n_tokens {
            to.fill(0.0);
            continue;
        }
        let row = &from[track.start + token * track.stride..][..d_head];
        // The row of the next head, which is behind this one.
        for at in (d_head..2 * d_head).step_by(16) {
            L::prefetch(row.as_ptr().wrapping_add(at));
        }
        to[d_head..].fill(0.0);
        turn(row, angles(rotation, token, d_head), 1.0, scale, &mut to[..d_head]);
    }
}

/// The cosines and sines of a position.
#[inline(always)]
fn angles<'a>(rotation: Option<Angles<'a>>, token: usize, d_head: usize) -> Option<Angles<'a>> {
    let half = d_head / 2;
    rotation.map(|(cos, sin)| (&cos[token * half..][..half], &sin[token * half..][..half]))
}

/// `to = scale · from`, turned; back again if `way` is -1.
#[inline(always)]
fn turn(from: &[f32], angles: Option<Angles>, way: f32, scale: f32, to: &mut [f32]) {
    match angles {
        None => {
            for (to, from) in to.iter_mut().zip(from) {
                *to = from * scale;
            }
        }
        Some((cos, sin)) => {
            let pairs = to.chunks_exact_mut(2).zip(from.chunks_exact(2));
            for ((to, from), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
                let (cos, sin) = (cos * scale, sin * scale * way);
                to[0] = from[0] * cos - from[1] * sin;
                to[1] = from[0] * sin + from[1] * cos;
            }
        }
    }
}

/// Rows of `width` numbers → panels of `d_head` rows of [`PANEL`] numbers.
#[inline(always)]
fn panels(rows: &[f32], width: usize, d_head: usize, to: &mut [f32]) {
    let blocks = rows.chunks_exact(PANEL * width).zip(to.chunks_exact_mut(PANEL * d_head));
    for (rows, to) in blocks {
        // Eight rows at a time: as many streams as a processor follows.
        for eight in (0..PANEL).step_by(8) {
            for column in 0..d_head {
                let to = &mut to[column * PANEL + eight..][..8];
                for (i, to) in to.iter_mut().enumerate() {
                    *to = rows[(eight + i) * width + column];
                }
            }
        }
    }
}

/// Scores of a tile of rows with the keys of all panels up to `n_keys`: `to` is `reach` apart.
///
/// # Safety
///
/// The processor has the features of the level; `rows` has a tile, `panels` and `to` have room for
/// as many keys in whole panels.
#[inline(always)]
unsafe fn scores<L: Lanes>(
    (rows, width): (&[f32], usize),
    (panels, d_head): (&[f32], usize),
    n_keys: usize,
    (to, reach): (&mut [f32], usize),
) {
    let left = Left { start: rows.as_ptr(), row: width, column: 1 };
    for at in (0..n_keys).step_by(PANEL) {
        let right = Rows { start: panels[at * d_head..].as_ptr(), row: PANEL };
        let to = Rows { start: to[at..].as_mut_ptr(), row: reach };
        // SAFETY: the caller's word.
        unsafe { product::<L>(left, right, to, (d_head, PANEL), false) };
    }
}

// --- forward -----------------------------------------------------------------------------------

/// Causal attention: `out` is (samples, tokens, heads · d_head), `logs` (samples, heads, tokens) the
/// logarithms of the sums of the exponentials of each query's scores.
pub fn attend(
    level: Level,
    shape: Shape,
    inputs: Inputs,
    (out, logs): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    shape.check(&inputs)?;
    if out.len() != inputs.query.len()
        || logs.len() != shape.n_samples * shape.n_heads * shape.n_tokens
    {
        return Err(Error::input("there is no room for what the attention gives"));
    }
    let (out, logs) = (Shared::new(out), Shared::new(logs));
    let (rows, tile) = (shape.reach() * shape.width(), ROWS * shape.width());
    let sizes = [rows, shape.reach() * shape.d_head, rows, tile, ROWS * shape.reach(), tile];
    shape.each(threads, |sample, kv_head| {
        with_memory(sizes, |[keys, key_panels, values, query, scores, mixed]| {
            let (out, logs) = (&out, &logs);
            // SAFETY: levels come from `Level::available`.
            unsafe {
                level.run(Attend {
                    shape,
                    inputs,
                    out,
                    logs,
                    sample,
                    kv_head,
                    keys,
                    key_panels,
                    values,
                    query,
                    scores,
                    mixed,
                });
            }
        });
    })
}

/// What one thread does; all memory is handed in, as what is behind a closure of the standard
/// library is compiled without the features of the level.
struct Attend<'a> {
    shape: Shape,
    inputs: Inputs<'a>,
    out: &'a Shared<'a>,
    logs: &'a Shared<'a>,
    sample: usize,
    kv_head: usize,
    keys: &'a mut [f32],
    key_panels: &'a mut [f32],
    values: &'a mut [f32],
    /// A tile of queries, of scores with all keys, and of results.
    query: &'a mut [f32],
    scores: &'a mut [f32],
    mixed: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let Shape { n_tokens, n_heads, n_kv_heads, d_head, .. } = self.shape;
        let width = self.shape.width();
        let track = self.shape.track(self.sample, self.kv_head, n_kv_heads);
        let all = (0, self.shape.reach(), n_tokens);
        let turned = (self.inputs.rotation, 1.0);
        pack::<L>((self.inputs.key, track), all, d_head, turned, (self.keys, width));
        panels(self.keys, width, d_head, self.key_panels);
        pack::<L>((self.inputs.value, track), all, d_head, (None, 1.0), (self.values, width));
        let shared = n_heads / n_kv_heads;
        for head in self.kv_head * shared..(self.kv_head + 1) * shared {
            for first in (0..n_tokens).step_by(ROWS) {
                // SAFETY: the processor has the features, or `run` would not be called.
                unsafe { self.tile::<L>(head, first) };
            }
        }
    }
}

impl Attend<'_> {
    /// The queries from `first` on.
    #[inline(always)]
    unsafe fn tile<L: Lanes>(&mut self, head: usize, first: usize) {
        let Shape { n_tokens, n_heads, d_head, .. } = self.shape;
        let (width, reach) = (self.shape.width(), self.shape.reach());
        let track = self.shape.track(self.sample, head, n_heads);
        let turned = (self.inputs.rotation, self.shape.scale());
        let some = (first, ROWS, n_tokens);
        pack::<L>((self.inputs.query, track), some, d_head, turned, (self.query, width));
        let n_keys = first + ROWS;
        let (query, panels) = ((&*self.query, width), (&*self.key_panels, d_head));
        // SAFETY: the memory is as large as it was asked for: a tile of queries, and scores and
        // keys for all tokens in whole panels.
        unsafe { scores::<L>(query, panels, n_keys, (self.scores, reach)) };
        let mut shares = [0.0; ROWS];
        let mut levels = [0.0; ROWS];
        // Whole registers: what is behind the diagonal adds nothing to a sum that is 1 or more.
        let n_whole = n_keys.next_multiple_of(LANES);
        for (i, row) in self.scores.chunks_exact_mut(reach).enumerate() {
            let row = &mut row[..n_whole];
            row[first + i + 1..].fill(f32::NEG_INFINITY);
            let most = largest(row);
            let sum = exp_below(row, most);
            row[first + i + 1..].fill(0.0);
            shares[i] = 1.0 / sum;
            levels[i] = most + sum.ln();
        }
        let left = Left { start: self.scores.as_ptr(), row: reach, column: 1 };
        let right = Rows { start: self.values.as_ptr(), row: width };
        let to = Rows { start: self.mixed.as_mut_ptr(), row: width };
        // SAFETY: as above.
        unsafe { product::<L>(left, right, to, (n_keys, width), false) };
        let n = ROWS.min(n_tokens - first);
        for (i, mixed) in self.mixed.chunks_exact(width).take(n).enumerate() {
            let at = track.start + (first + i) * track.stride;
            // SAFETY: this head of this sample is ours alone.
            let out = unsafe { self.out.part(at, d_head) };
            for (out, mixed) in out.iter_mut().zip(mixed) {
                *out = mixed * shares[i];
            }
        }
        let at = (self.sample * n_heads + head) * n_tokens + first;
        // SAFETY: as above.
        unsafe { self.logs.part(at, n) }.copy_from_slice(&levels[..n]);
    }
}

// --- back --------------------------------------------------------------------------------------

/// What [`attend`] gave, and the gradient of it.
#[derive(Debug, Clone, Copy)]
pub struct Outputs<'a> {
    /// The first of it.
    pub out: &'a [f32],
    /// The second.
    pub logs: &'a [f32],
    /// Of the first.
    pub grad: &'a [f32],
}

/// The gradients of queries, keys and values.
pub fn attend_back(
    level: Level,
    shape: Shape,
    inputs: Inputs,
    outputs: Outputs,
    grads: [&mut [f32]; 3],
    threads: &dyn Threads,
) -> Result<()> {
    shape.check(&inputs)?;
    let wide = inputs.query.len();
    let fits = outputs.out.len() == wide
        && outputs.grad.len() == wide
        && outputs.logs.len() == shape.n_samples * shape.n_heads * shape.n_tokens
        && grads[0].len() == wide
        && grads[1].len() == inputs.key.len()
        && grads[2].len() == inputs.key.len();
    if !fits {
        return Err(Error::input("these are not what the attention gave"));
    }
    let grads = grads.map(Shared::new);
    let (rows, block) = (shape.reach() * shape.width(), BLOCK * shape.width());
    let (panels, scores) = (shape.reach() * shape.d_head, BLOCK * shape.reach());
    let sizes = [rows, panels, panels, rows, rows, block, block, block, BLOCK, scores, scores];
    shape.each(threads, |sample, kv_head| {
        with_memory(sizes, |memory| {
            #[rustfmt::skip]
            let [keys, key_panels, value_panels, key_grad, value_grad,
                query, grad, query_grad, along, shares, slopes] = memory;
            // SAFETY: levels come from `Level::available`.
            unsafe {
                level.run(AttendBack {
                    shape,
                    inputs,
                    outputs,
                    grads: &grads,
                    sample,
                    kv_head,
                    keys,
                    key_panels,
                    value_panels,
                    key_grad,
                    value_grad,
                    query,
                    grad,
                    query_grad,
                    along,
                    shares,
                    slopes,
                });
            }
        });
    })
}

struct AttendBack<'a> {
    shape: Shape,
    inputs: Inputs<'a>,
    outputs: Outputs<'a>,
    grads: &'a [Shared<'a>; 3],
    sample: usize,
    kv_head: usize,
    keys: &'a mut [f32],
    key_panels: &'a mut [f32],
    value_panels: &'a mut [f32],
    key_grad: &'a mut [f32],
    value_grad: &'a mut [f32],
    /// A block of queries and of gradients: of results, and of the queries.
    query: &'a mut [f32],
    grad: &'a mut [f32],
    query_grad: &'a mut [f32],
    /// How far the gradient of each result of the block goes along it.
    along: &'a mut [f32],
    /// A block of softmax, and of the gradients of scores.
    shares: &'a mut [f32],
    slopes: &'a mut [f32],
}

impl Kernel for AttendBack<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let Shape { n_tokens, n_heads, n_kv_heads, d_head, .. } = self.shape;
        let width = self.shape.width();
        let track = self.shape.track(self.sample, self.kv_head, n_kv_heads);
        let all = (0, self.shape.reach(), n_tokens);
        // Only for a moment: the place is needed for the keys.
        pack::<L>((self.inputs.value, track), all, d_head, (None, 1.0), (self.keys, width));
        panels(self.keys, width, d_head, self.value_panels);
        let turned = (self.inputs.rotation, 1.0);
        pack::<L>((self.inputs.key, track), all, d_head, turned, (self.keys, width));
        panels(self.keys, width, d_head, self.key_panels);
        self.key_grad.fill(0.0);
        self.value_grad.fill(0.0);
        let shared = n_heads / n_kv_heads;
        for head in self.kv_head * shared..(self.kv_head + 1) * shared {
            for first in (0..n_tokens).step_by(BLOCK) {
                // SAFETY: the processor has the features, or `run` would not be called.
                unsafe { self.block::<L>(head, first) };
            }
        }
        let all = (0, n_tokens, d_head);
        put_back((self.key_grad, width), all, turned, (&self.grads[1], track));
        put_back((self.value_grad, width), all, (None, 1.0), (&self.grads[2], track));
    }
}

impl AttendBack<'_> {
    /// The queries from `first` on.
    #[inline(always)]
    unsafe fn block<L: Lanes>(&mut self, head: usize, first: usize) {
        let Shape { n_tokens, n_heads, d_head, .. } = self.shape;
        let width = self.shape.width();
        let track = self.shape.track(self.sample, head, n_heads);
        let some = (first, BLOCK, n_tokens);
        let turned = (self.inputs.rotation, self.shape.scale());
        pack::<L>((self.inputs.query, track), some, d_head, turned, (self.query, width));
        pack::<L>((self.outputs.grad, track), some, d_head, (None, 1.0), (self.grad, width));
        let n = BLOCK.min(n_tokens - first);
        for (i, along) in self.along.iter_mut().enumerate().take(n) {
            let out = &self.outputs.out[track.start + (first + i) * track.stride..][..d_head];
            let grad = &self.grad[i * width..][..d_head];
            *along = sum3(out, grad, grad, |out, grad, _| out * grad);
        }
        // SAFETY: the caller's word.
        unsafe {
            for tile in (0..n).step_by(ROWS) {
                self.tile::<L>(head, first, tile);
            }
            self.keys_and_values::<L>(first, n);
        }
        put_back((self.query_grad, width), (first, n, d_head), turned, (&self.grads[0], track));
    }

    /// Shares, slopes and the gradients of the queries from `first + tile` on.
    #[inline(always)]
    unsafe fn tile<L: Lanes>(&mut self, head: usize, first: usize, tile: usize) {
        let Shape { n_tokens, n_heads, d_head, .. } = self.shape;
        let (width, reach) = (self.shape.width(), self.shape.reach());
        let n_keys = first + tile + ROWS;
        let (row, score) = (tile * width, tile * reach);
        // SAFETY: the memory is as large as it was asked for.
        unsafe {
            let panels = (&*self.key_panels, d_head);
            scores::<L>(
                (&self.query[row..], width),
                panels,
                n_keys,
                (&mut self.shares[score..], reach),
            );
            let panels = (&*self.value_panels, d_head);
            scores::<L>(
                (&self.grad[row..], width),
                panels,
                n_keys,
                (&mut self.slopes[score..], reach),
            );
        }
        let n_whole = n_keys.next_multiple_of(LANES);
        let logs = &self.outputs.logs[(self.sample * n_heads + head) * n_tokens..][..n_tokens];
        for i in tile..tile + ROWS {
            let token = first + i;
            // Rows of tokens that are not there get no shares.
            let n_seen = if token < n_tokens { token + 1 } else { 0 };
            let shares = &mut self.shares[i * reach..][..n_whole];
            let slopes = &mut self.slopes[i * reach..][..n_whole];
            if n_seen > 0 {
                let (log, along) = (logs[token], self.along[i]);
                for (share, slope) in shares.iter_mut().zip(&mut *slopes) {
                    *share = exp(*share - log);
                    *slope = *share * (*slope - along);
                }
            }
            shares[n_seen..].fill(0.0);
            slopes[n_seen..].fill(0.0);
        }
        let left = Left { start: self.slopes[score..].as_ptr(), row: reach, column: 1 };
        let right = Rows { start: self.keys.as_ptr(), row: width };
        let to = Rows { start: self.query_grad[row..].as_mut_ptr(), row: width };
        // SAFETY: as above.
        unsafe { product::<L>(left, right, to, (n_keys, width), false) };
    }

    /// Adds what `n` queries from `first` on give to the gradients of the keys and values they see.
    #[inline(always)]
    unsafe fn keys_and_values<L: Lanes>(&mut self, first: usize, n: usize) {
        let (width, reach) = (self.shape.width(), self.shape.reach());
        for at in (0..first + n).step_by(ROWS) {
            // Queries before these keys do not see them.
            let before = at.saturating_sub(first);
            // Whole tiles of queries, of which those that are not there have no shares.
            let n_queries = n.next_multiple_of(ROWS) - before;
            for (scores, rows, to) in [
                (&*self.shares, &*self.grad, &mut *self.value_grad),
                (&*self.slopes, &*self.query, &mut *self.key_grad),
            ] {
                let start = scores[before * reach + at..].as_ptr();
                let left = Left { start, row: 1, column: reach };
                let right = Rows { start: rows[before * width..].as_ptr(), row: width };
                let to = Rows { start: to[at * width..].as_mut_ptr(), row: width };
                // SAFETY: the memory is as large as it was asked for, and the caller's word.
                unsafe { product::<L>(left, right, to, (n_queries, width), true) };
            }
        }
    }
}

/// Writes the gradients of rows, turned back and scaled, to where they belong.
#[inline(always)]
fn put_back(
    (rows, width): (&[f32], usize),
    (first, n, d_head): (usize, usize, usize),
    (rotation, scale): (Option<Angles>, f32),
    (to, track): (&Shared, Track),
) {
    for (i, row) in rows.chunks_exact(width).take(n).enumerate() {
        let token = first + i;
        // SAFETY: this head of this sample is the caller's alone.
        let to = unsafe { to.part(track.start + token * track.stride, d_head) };
        turn(&row[..d_head], angles(rotation, token, d_head), -1.0, scale, to);
    }
}
