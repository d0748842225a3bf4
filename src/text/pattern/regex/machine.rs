//! A backtracking machine that counts its steps.
//!
//! It is written here, not taken from a library, because of its guarantees: whatever the expression
//! and the text, it stops within a number of steps that depends on the size of the text alone, and
//! it checks for cancellation about every millisecond. No instruction passes more than a few thousand
//! characters without counting them.
//!
//! Look-arounds and atomic groups run separately and leave no branches. So, without back-references,
//! whether an instruction at a position leads to a match depends on those two alone; once an attempt
//! gets long, the pairs that were tried are memoized, so no attempt is worse than quadratic where
//! plain backtracking is exponential. Memory is bounded too: branches and saved slots by
//! [`MAX_BRANCHES`], memoized pairs by [`MAX_MEMOIZED`].

use std::collections::HashSet;
use std::sync::LazyLock;

use fancy_regex::Assertion;

use super::chars::{self, CharSet, char_at, same_but_for_case};
use super::program::{Inst, Program, Run, RunKind, START, Sizes};
use crate::base::error::Error;
use crate::base::job;

/// Steps that every scan may take: one or two seconds.
const MAX_STEPS: u64 = 200_000_000;
/// Further steps for each byte already searched: a hundred times what common expressions take. One
/// more is allowed for each byte of the text, which a single match may have to read.
const MAX_STEPS_PER_BYTE: u64 = 2000;
/// Steps between two checks for cancellation: about a millisecond.
const STEPS_PER_CHECK: u64 = 1 << 18;
/// Bytes of a repeated class that are passed in one step.
const RUN_BYTES_PER_STEP: usize = 2;
/// Bytes that are compared in one step.
const BYTES_PER_STEP: usize = 16;
/// The steps that memoizing counts as: most likely a cache miss.
const STEPS_PER_MEMO: usize = 8;
/// The steps that folding the case of a character beyond ASCII counts as.
const STEPS_PER_FOLDING: usize = 1 << 10;
/// Characters of a class that are passed between two counts.
const MAX_UNCOUNTED: usize = 1 << 14;
/// The most branches, or slots to restore: 100 MB.
const MAX_BRANCHES: usize = 1 << 21;
/// An attempt of more steps than this is memoized; tests use short texts.
const STEPS_BEFORE_MEMO: u64 = if cfg!(test) { 1 << 4 } else { 1 << 14 };
const MAX_MEMOIZED: usize = 1 << 20;
/// The value of a slot that was not set.
const UNSET: usize = usize::MAX;

static WORD: LazyLock<Option<CharSet>> = LazyLock::new(|| CharSet::parse(r"\w", false).ok());

/// Why a machine gave up.
#[derive(Debug)]
pub enum Stop {
    /// More steps, or more memory, than an expression may take.
    Costly(String),
    /// The job was canceled.
    Asked(Error),
}

/// A position to backtrack to.
#[derive(Debug)]
struct Branch {
    pc: usize,
    at: usize,
    /// How many slots had been changed.
    n_changed: usize,
    more: More,
}

/// How a branch can be taken again, at another position.
#[derive(Debug)]
enum More {
    No,
    /// One character less, down to this position.
    Back(usize),
    /// One character more of this set, up to a number of times.
    Forward(usize, usize),
}

#[derive(Debug)]
pub struct Machine<'a> {
    program: &'a Program,
    text: &'a [u8],
    /// Where the scan started.
    start: usize,
    search_start: usize,
    /// Where the current attempt to match starts.
    attempt: usize,
    slots: Vec<usize>,
    /// Slots that were overwritten, with their old values.
    changed: Vec<(usize, usize)>,
    branches: Vec<Branch>,
    /// (run, instruction, position) that did not lead to a match, or are being tried.
    tried: HashSet<(usize, usize, usize)>,
    n_runs: usize,
    steps: u64,
    next_check: u64,
    memoize_from: u64,
}

impl<'a> Machine<'a> {
    /// A machine for the text from `start` on.
    pub fn new(program: &'a Program, text: &'a [u8], start: usize) -> Self {
        Machine {
            program,
            text,
            start,
            search_start: start,
            attempt: start,
            slots: vec![UNSET; program.n_slots],
            changed: Vec::new(),
            branches: Vec::new(),
            tried: HashSet::new(),
            n_runs: 0,
            steps: 0,
            next_check: STEPS_PER_CHECK,
            memoize_from: 0,
        }
    }

    /// The first match from `from` on, as its start and end. With `\K` the start may be
    /// before `from`.
    pub fn find(&mut self, from: usize) -> Result<Option<(usize, usize)>, Stop> {
        self.search_start = from;
        self.tried.clear();
        let mut at = from;
        loop {
            self.attempt = at;
            self.count(1 + self.slots.len() / BYTES_PER_STEP)?;
            if self.program.first.allows(self.text, at) {
                self.slots.fill(UNSET);
                self.slots[START] = at;
                self.changed.clear();
                self.memoize_from = self.steps + STEPS_BEFORE_MEMO;
                if let Some(end) = self.run(0, at, None)? {
                    return Ok(Some((self.slots[START].min(end), end)));
                }
            }
            match char_at(self.text, at) {
                Some((_, size)) => at += size,
                None => return Ok(None),
            }
        }
    }

    /// Where the last attempt to match started.
    pub fn attempt(&self) -> usize {
        self.attempt
    }

    #[inline(always)]
    fn count(&mut self, n: usize) -> Result<(), Stop> {
        self.steps += n as u64;
        if self.steps >= self.next_check { self.check() } else { Ok(()) }
    }

    #[cold]
    fn check(&mut self) -> Result<(), Stop> {
        self.next_check = self.steps + STEPS_PER_CHECK;
        let searched = (self.attempt - self.start) as u64;
        let limit = MAX_STEPS
            + (self.text.len() - self.start) as u64
            + MAX_STEPS_PER_BYTE.saturating_mul(searched);
        if self.steps > limit {
            return Err(Stop::Costly(format!("more than {limit} steps")));
        }
        job::check_thread().map_err(Stop::Asked)
    }

    /// Runs the instructions from `pc` on at position `at` up to a match, which must end at `goal` if
    /// there is one. Returns the end; without a match, slots are unchanged.
    fn run(
        &mut self,
        mut pc: usize,
        mut at: usize,
        goal: Option<usize>,
    ) -> Result<Option<usize>, Stop> {
        let (program, text) = (self.program, self.text);
        let first_branch = self.branches.len();
        let n_changed = self.changed.len();
        self.n_runs += 1;
        let run = self.n_runs;
        loop {
            self.count(1)?;
            let matched = match &program.insts[pc] {
                Inst::Match => {
                    if goal.is_none_or(|goal| goal == at) {
                        self.branches.truncate(first_branch);
                        return Ok(Some(at));
                    }
                    None
                }
                Inst::Char(set) => program.sets[*set].size_at(text, at).map(|n| (pc + 1, at + n)),
                Inst::Bytes(bytes) => {
                    self.count(bytes.len() / BYTES_PER_STEP)?;
                    text[at..].starts_with(bytes).then(|| (pc + 1, at + bytes.len()))
                }
                Inst::Run(_) if self.was_tried(run, pc, at)? => None,
                Inst::Run(repeated) => self.repeated(repeated, pc + 1, at)?.map(|at| (pc + 1, at)),
                Inst::Fork(fork) => match fork.firsts.map(|first| first.allows(text, at)) {
                    [false, false] => None,
                    [true, false] => Some((fork.ways[0], at)),
                    [false, true] => Some((fork.ways[1], at)),
                    [true, true] if self.was_tried(run, pc, at)? => None,
                    [true, true] => {
                        self.branch(fork.ways[1], at, More::No)?;
                        Some((fork.ways[0], at))
                    }
                },
                Inst::Jump(to) => Some((*to, at)),
                Inst::Save(slot) => {
                    self.save(*slot, at)?;
                    Some((pc + 1, at))
                }
                Inst::Still { slot, out } => {
                    Some((if self.slots[*slot] == at { *out } else { pc + 1 }, at))
                }
                Inst::Assert(assertion) => self.holds(*assertion, at)?.then_some((pc + 1, at)),
                Inst::SearchStart => (at == self.search_start).then_some((pc + 1, at)),
                Inst::Backref { group, any_case } => {
                    self.backref(*group, *any_case, at)?.map(|at| (pc + 1, at))
                }
                Inst::Look { negative, behind, next } => {
                    let before = self.changed.len();
                    let found = match behind {
                        None => self.run(pc + 1, at, None)?.is_some(),
                        Some(sizes) => self.look_behind(pc + 1, at, *sizes)?,
                    };
                    if found && *negative {
                        self.restore(before);
                    }
                    (found != *negative).then_some((*next, at))
                }
                Inst::Atomic { next } => self.run(pc + 1, at, None)?.map(|at| (*next, at)),
            };
            let Some(next) = matched.or_else(|| self.back(first_branch)) else {
                self.restore(n_changed);
                return Ok(None);
            };
            (pc, at) = next;
        }
    }

    /// Whether this was tried before, and so leads to no match; records it as tried.
    #[inline]
    fn was_tried(&mut self, run: usize, pc: usize, at: usize) -> Result<bool, Stop> {
        if self.steps < self.memoize_from || !self.program.pure {
            return Ok(false);
        }
        self.count(STEPS_PER_MEMO)?;
        if self.tried.len() >= MAX_MEMOIZED {
            self.tried.clear();
        }
        Ok(!self.tried.insert((run, pc, at)))
    }

    fn branch(&mut self, pc: usize, at: usize, more: More) -> Result<(), Stop> {
        if self.branches.len() >= MAX_BRANCHES {
            return Err(too_many_branches());
        }
        self.branches.push(Branch { pc, at, n_changed: self.changed.len(), more });
        Ok(())
    }

    fn save(&mut self, slot: usize, at: usize) -> Result<(), Stop> {
        if self.changed.len() >= MAX_BRANCHES {
            return Err(too_many_branches());
        }
        self.changed.push((slot, self.slots[slot]));
        self.slots[slot] = at;
        Ok(())
    }

    fn restore(&mut self, n_changed: usize) {
        for (slot, old) in self.changed.drain(n_changed..).rev() {
            self.slots[slot] = old;
        }
    }

    /// Backtracks to the last branch of this run.
    fn back(&mut self, first_branch: usize) -> Option<(usize, usize)> {
        while self.branches.len() > first_branch {
            let branch = self.branches.last_mut()?;
            let (pc, n_changed) = (branch.pc, branch.n_changed);
            let found = match branch.more {
                More::No => Some(branch.at),
                More::Back(least) => {
                    let position = chars::before(self.text, branch.at).filter(|&at| at >= least);
                    branch.at = position.unwrap_or(least);
                    position
                }
                More::Forward(set, most) => {
                    let size = self.program.sets[set].size_at(self.text, branch.at);
                    branch.more = More::Forward(set, most.saturating_sub(1));
                    let position = size.filter(|_| most > 0).map(|size| branch.at + size);
                    branch.at = position.unwrap_or(branch.at);
                    position
                }
            };
            let again = match branch.more {
                More::No => false,
                More::Back(least) => branch.at > least,
                More::Forward(_, most) => found.is_some() && most > 0,
            };
            if !again {
                self.branches.pop();
            }
            if let Some(at) = found {
                self.restore(n_changed);
                return Some((pc, at));
            }
        }
        None
    }

    /// Where a repeated class ends.
    fn repeated(&mut self, run: &Run, next: usize, at: usize) -> Result<Option<usize>, Stop> {
        let set = &self.program.sets[run.set];
        let Some(least) = self.pass(set, at, run.least)? else { return Ok(None) };
        let more = run.most - run.least;
        if run.kind == RunKind::Lazy {
            self.branch(next, least, More::Forward(run.set, more))?;
            return Ok(Some(least));
        }
        let end = self.pass_up_to(set, least, more)?.0;
        if run.kind == RunKind::Greedy && end > least {
            self.branch(next, end, More::Back(least))?;
        }
        Ok(Some(end))
    }

    /// The end of `n` characters of a set from `at` on, if there are that many.
    fn pass(&mut self, set: &CharSet, at: usize, n: usize) -> Result<Option<usize>, Stop> {
        let (end, passed) = self.pass_up_to(set, at, n)?;
        Ok((passed == n).then_some(end))
    }

    /// The end of the characters of a set from `at` on, at most `most` of them, and their number.
    fn pass_up_to(
        &mut self,
        set: &CharSet,
        mut at: usize,
        most: usize,
    ) -> Result<(usize, usize), Stop> {
        let mut passed = 0;
        loop {
            let upto = most.min(passed + MAX_UNCOUNTED);
            let before = at;
            while passed < upto
                && let Some(size) = set.size_at(self.text, at)
            {
                at += size;
                passed += 1;
            }
            self.count((at - before) / RUN_BYTES_PER_STEP)?;
            if passed < upto || passed == most {
                return Ok((at, passed));
            }
        }
    }

    /// Whether the instructions from `pc` on match some text that ends at `at`.
    fn look_behind(&mut self, pc: usize, at: usize, sizes: Sizes) -> Result<bool, Stop> {
        let mut start = at;
        for n_back in 0.. {
            if n_back >= sizes.least && self.run(pc, start, Some(at))?.is_some() {
                return Ok(true);
            }
            self.count(1)?;
            match chars::before(self.text, start) {
                Some(before) if n_back < sizes.most => start = before,
                _ => break,
            }
        }
        Ok(false)
    }

    /// The end of a back-reference at `at`, if the text of the group occurs there again.
    fn backref(&mut self, group: usize, any_case: bool, at: usize) -> Result<Option<usize>, Stop> {
        let (start, end) = (self.slots[2 * group], self.slots[2 * group + 1]);
        if start == UNSET || end == UNSET || end < start {
            return Ok(None);
        }
        let captured = &self.text[start..end];
        self.count(captured.len() / BYTES_PER_STEP)?;
        if self.text[at..].starts_with(captured)
            && chars::is_boundary(self.text, at + captured.len())
        {
            return Ok(Some(at + captured.len()));
        }
        if !any_case {
            return Ok(None);
        }
        let (mut here, mut there) = (at, start);
        while there < end {
            let (Some((one, size)), Some((other, other_size))) =
                (char_at(self.text, here), char_at(self.text, there))
            else {
                return Ok(None);
            };
            self.count(if one.max(other) < 128 { 1 } else { STEPS_PER_FOLDING })?;
            if !same_but_for_case(one, other) {
                return Ok(None);
            }
            (here, there) = (here + size, there + other_size);
        }
        Ok(Some(here))
    }

    fn holds(&mut self, assertion: Assertion, at: usize) -> Result<bool, Stop> {
        let text = self.text;
        let (last, next) = (at.checked_sub(1).map(|i| text[i]), text.get(at).copied());
        let line_starts = |crlf| match last {
            None | Some(b'\n') => true,
            Some(b'\r') => crlf && next != Some(b'\n'),
            _ => false,
        };
        let is_word = |position: Option<usize>| {
            let c = position.and_then(|at| char_at(text, at)).map(|found| found.0);
            c.is_some_and(|c| WORD.as_ref().is_some_and(|word| word.contains(c)))
        };
        let before = || is_word(chars::before(text, at));
        let after = || is_word(Some(at));
        Ok(match assertion {
            Assertion::StartText => at == 0,
            Assertion::EndText => at == text.len(),
            Assertion::EndTextIgnoreTrailingNewlines { crlf } => {
                let ends_line = |byte: &&u8| **byte == b'\n' || crlf && **byte == b'\r';
                let n_ends = text[at..].iter().take_while(ends_line).count();
                self.count(n_ends / BYTES_PER_STEP)?;
                at + n_ends == text.len()
            }
            Assertion::StartLine { crlf } => line_starts(crlf),
            Assertion::StartLineOniguruma { crlf } => {
                line_starts(crlf) && (at == 0 || at < text.len())
            }
            Assertion::EndLine { crlf } => match next {
                None => true,
                Some(b'\n') => !crlf || last != Some(b'\r'),
                Some(b'\r') => crlf,
                _ => false,
            },
            Assertion::LeftWordBoundary => !before() && after(),
            Assertion::RightWordBoundary => before() && !after(),
            Assertion::LeftWordHalfBoundary => !before(),
            Assertion::RightWordHalfBoundary => !after(),
            Assertion::WordBoundary => before() != after(),
            Assertion::NotWordBoundary => before() == after(),
        })
    }
}

fn too_many_branches() -> Stop {
    Stop::Costly(format!("more than {MAX_BRANCHES} positions to backtrack to"))
}
