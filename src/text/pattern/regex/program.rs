//! An expression as a program for the machine.
//!
//! `fancy-regex` parses the expression; its tree becomes a list of instructions in which every
//! choice is an [`Inst::Fork`] and every counted repetition is unrolled. A repeated character class,
//! which split patterns mostly consist of, is one instruction.

use std::collections::HashMap;

use fancy_regex::{Assertion, BacktrackingControlVerb, Expr, LookAround};

use super::chars::{ByteSet, CharSet};

/// The most instructions of a program, and the most nodes of an expression once its repetitions are
/// unrolled.
const MAX_INSTS: usize = 1 << 16;
/// In longer programs it is not worth finding what each branch can begin with.
const MAX_FILTERED: usize = 1 << 10;

#[derive(Debug)]
pub enum Inst {
    /// The end of the program, or of a look-around or atomic group.
    Match,
    /// One character of a set, by its number.
    Char(usize),
    Bytes(Box<[u8]>),
    Run(Run),
    Fork(Box<Fork>),
    Jump(usize),
    /// Saves the position in a slot.
    Save(usize),
    /// Leaves a loop for the instruction `out` if the last round, whose start is in `slot`, was empty.
    Still {
        slot: usize,
        out: usize,
    },
    Assert(Assertion),
    /// The position where the search started.
    SearchStart,
    Backref {
        group: usize,
        any_case: bool,
    },
    /// Tests whether the instructions after this one match here, and continues at `next`.
    Look {
        negative: bool,
        behind: Option<Sizes>,
        next: usize,
    },
    /// As a look-ahead, but consumes what it matches, without backtracking into it.
    Atomic {
        next: usize,
    },
}

/// A repeated set of characters.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub set: usize,
    pub least: usize,
    pub most: usize,
    pub kind: RunKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    Greedy,
    Lazy,
    Possessive,
}

/// Two ways to continue, in order of preference, and what each can begin with.
#[derive(Debug)]
pub struct Fork {
    pub ways: [usize; 2],
    pub firsts: [ByteSet; 2],
}

/// How many characters an expression can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub least: usize,
    pub most: usize,
}

#[derive(Debug)]
pub struct Program {
    pub insts: Vec<Inst>,
    pub sets: Vec<CharSet>,
    pub n_slots: usize,
    /// Whether a match depends on its position alone: there are no back-references.
    pub pure: bool,
    /// What a match can begin with.
    pub first: ByteSet,
}

/// Slots 0 and 1: where the match starts and ends. A group has its two slots after those.
pub const START: usize = 0;

impl Program {
    /// Compiles an expression; the error states why it is invalid.
    pub fn new(regex: &str) -> Result<Self, String> {
        let tree = Expr::parse_tree(regex).map_err(|error| error.to_string())?;
        let is_backref = |expr: &Expr| matches!(expr, Expr::Backref { .. });
        let pure = !is_backref(&tree.expr) && !tree.expr.has_descendant(is_backref);
        let mut groups = HashMap::new();
        number_groups(&tree.expr, &mut groups);
        let n_slots = if pure { START + 1 } else { 2 * (groups.len() + 1) };
        let mut compiler = Compiler {
            insts: Vec::new(),
            sets: Vec::new(),
            by_class: HashMap::new(),
            by_place: HashMap::new(),
            n_slots,
            n_nodes: 0,
            groups,
            pure,
        };
        compiler.visit(&tree.expr)?;
        compiler.push(Inst::Match)?;
        let Compiler { mut insts, sets, n_slots, .. } = compiler;
        let first = filter(&mut insts, &sets);
        Ok(Program { insts, sets, n_slots, pure, first })
    }
}

/// The numbers of all groups, by their addresses in the tree.
fn number_groups(expr: &Expr, groups: &mut HashMap<*const Expr, usize>) {
    if matches!(expr, Expr::Group(_)) {
        let number = groups.len() + 1;
        groups.insert(std::ptr::from_ref(expr), number);
    }
    for child in expr.children_iter() {
        number_groups(child, groups);
    }
}

struct Compiler {
    insts: Vec<Inst>,
    sets: Vec<CharSet>,
    /// The sets of short spellings, and whether in any case.
    by_class: HashMap<(String, bool), usize>,
    /// The sets of classes, by their addresses in the tree: they may be long, and repeated.
    by_place: HashMap<*const Expr, usize>,
    n_slots: usize,
    n_nodes: usize,
    groups: HashMap<*const Expr, usize>,
    pure: bool,
}

impl Compiler {
    fn push(&mut self, inst: Inst) -> Result<usize, String> {
        if self.insts.len() >= MAX_INSTS {
            return Err(too_large());
        }
        self.insts.push(inst);
        Ok(self.insts.len() - 1)
    }

    fn visit(&mut self, expr: &Expr) -> Result<(), String> {
        self.n_nodes += 1;
        if self.n_nodes > MAX_INSTS {
            return Err(too_large());
        }
        if let Some(set) = self.single(expr)? {
            return self.push(Inst::Char(set)).map(drop);
        }
        match expr {
            Expr::Empty => Ok(()),
            Expr::Literal { val, casei: false } => {
                self.n_nodes += val.len() / 16;
                self.push(Inst::Bytes(val.as_bytes().into())).map(drop)
            }
            Expr::Literal { val, casei: true } => val.chars().try_for_each(|c| {
                let set = self.char(c, true)?;
                self.push(Inst::Char(set)).map(drop)
            }),
            Expr::Concat(parts) => parts.iter().try_for_each(|part| self.visit(part)),
            Expr::Alt(ways) => self.alternatives(ways),
            Expr::Group(inner) => self.group(expr, inner),
            Expr::Repeat { child, lo, hi, greedy } => self.repeat(child, *lo, *hi, *greedy),
            Expr::AtomicGroup(inner) => self.atomic(inner),
            Expr::LookAround(inner, kind) => self.look(inner, *kind),
            Expr::Assertion(assertion) => self.push(Inst::Assert(*assertion)).map(drop),
            Expr::KeepOut => self.push(Inst::Save(START)).map(drop),
            Expr::ContinueFromPreviousMatchEnd => self.push(Inst::SearchStart).map(drop),
            Expr::Backref { group, casei } if (1..=self.groups.len()).contains(group) => {
                self.push(Inst::Backref { group: *group, any_case: *casei }).map(drop)
            }
            Expr::Backref { group, .. } => {
                Err(format!("it refers to group {group}, which does not exist"))
            }
            Expr::GeneralNewline { unicode } => {
                let one = if *unicode { r"[\n-\r\x{85}\x{2028}\x{2029}]" } else { r"[\n-\r]" };
                let one = self.set(one, false)?;
                let start = self.push(Inst::Atomic { next: self.insts.len() + 6 })?;
                let fork = self.fork()?;
                self.set_ways(fork, [start + 2, start + 4]);
                self.push(Inst::Bytes(b"\r\n".as_slice().into()))?;
                self.push(Inst::Jump(start + 5))?;
                self.push(Inst::Char(one))?;
                self.push(Inst::Match).map(drop)
            }
            Expr::BacktrackingControlVerb(BacktrackingControlVerb::Fail) => {
                let nothing = self.set(r"[^\s\S]", false)?;
                self.push(Inst::Char(nothing)).map(drop)
            }
            Expr::Conditional { .. } | Expr::BackrefExistsCondition { .. } => {
                Err(unsupported("a condition such as (?(1)…)"))
            }
            Expr::SubroutineCall(_)
            | Expr::DefineGroup { .. }
            | Expr::BackrefWithRelativeRecursionLevel { .. } => {
                Err(unsupported(r"a subroutine call such as \g<1>"))
            }
            Expr::Absent(_) => Err(unsupported("an absent operator such as (?~…)")),
            Expr::BacktrackingControlVerb(_) => Err(unsupported("a verb such as (*SKIP)")),
            Expr::LiteralBytes { .. } => Err(unsupported("a byte that is not a character")),
            _ => Err(unsupported("an unknown construct")),
        }
    }

    /// The set of an expression that matches exactly one character.
    fn single(&mut self, expr: &Expr) -> Result<Option<usize>, String> {
        Ok(Some(match expr {
            Expr::Delegate { inner, casei } => {
                let place = std::ptr::from_ref(expr);
                match self.by_place.get(&place) {
                    Some(&set) => set,
                    None => {
                        let set = self.set(inner, *casei)?;
                        self.by_place.insert(place, set);
                        set
                    }
                }
            }
            Expr::Any { newline: true, .. } => self.set(r"[\s\S]", false)?,
            Expr::Any { crlf: true, .. } => self.set(r"[^\r\n]", false)?,
            Expr::Any { .. } => self.set(r"[^\n]", false)?,
            Expr::Literal { val, casei } => {
                let mut chars = val.chars();
                match (chars.next(), chars.next()) {
                    (Some(c), None) => self.char(c, *casei)?,
                    _ => return Ok(None),
                }
            }
            Expr::Group(inner) if self.pure => return self.single(inner),
            _ => return Ok(None),
        }))
    }

    fn set(&mut self, class: &str, any_case: bool) -> Result<usize, String> {
        let key = (class.to_owned(), any_case);
        if let Some(&number) = self.by_class.get(&key) {
            return Ok(number);
        }
        self.sets.push(CharSet::parse(class, any_case)?);
        self.by_class.insert(key, self.sets.len() - 1);
        Ok(self.sets.len() - 1)
    }

    fn char(&mut self, c: char, any_case: bool) -> Result<usize, String> {
        self.set(&regex_syntax::escape(c.encode_utf8(&mut [0; 4])), any_case)
    }

    fn alternatives(&mut self, ways: &[Expr]) -> Result<(), String> {
        let Some((last, ways)) = ways.split_last() else { return Ok(()) };
        let mut ends = Vec::with_capacity(ways.len());
        for way in ways {
            let fork = self.fork()?;
            self.visit(way)?;
            ends.push(self.push(Inst::Jump(0))?);
            self.set_ways(fork, [fork + 1, self.insts.len()]);
        }
        self.visit(last)?;
        let next = self.insts.len();
        for end in ends {
            self.insts[end] = Inst::Jump(next);
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<usize, String> {
        self.push(Inst::Fork(Box::new(Fork { ways: [0; 2], firsts: [ByteSet::ANY; 2] })))
    }

    fn set_ways(&mut self, at: usize, to: [usize; 2]) {
        if let Inst::Fork(fork) = &mut self.insts[at] {
            fork.ways = to;
        }
    }

    fn group(&mut self, expr: &Expr, inner: &Expr) -> Result<(), String> {
        match self.groups.get(&std::ptr::from_ref(expr)) {
            Some(&number) if !self.pure => {
                self.push(Inst::Save(2 * number))?;
                self.visit(inner)?;
                self.push(Inst::Save(2 * number + 1)).map(drop)
            }
            _ => self.visit(inner),
        }
    }

    fn repeat(&mut self, child: &Expr, lo: usize, hi: usize, greedy: bool) -> Result<(), String> {
        if let Some(set) = self.single(child)? {
            let kind = if greedy { RunKind::Greedy } else { RunKind::Lazy };
            return self.push(Inst::Run(Run { set, least: lo, most: hi, kind })).map(drop);
        }
        for _ in 0..lo {
            self.visit(child)?;
        }
        let order = |inside, out| if greedy { [inside, out] } else { [out, inside] };
        if hi == usize::MAX {
            let fork = self.fork()?;
            // A round that matched nothing is the last one, or the loop would not end.
            let may_be_empty = sizes(child).least == 0;
            let slot = self.n_slots;
            if may_be_empty {
                self.n_slots += 1;
                self.push(Inst::Save(slot))?;
            }
            self.visit(child)?;
            if may_be_empty {
                let out = self.insts.len() + 2;
                self.push(Inst::Still { slot, out })?;
            }
            self.push(Inst::Jump(fork))?;
            self.set_ways(fork, order(fork + 1, self.insts.len()));
            return Ok(());
        }
        let mut forks = Vec::new();
        for _ in lo..hi {
            forks.push(self.fork()?);
            self.visit(child)?;
        }
        let out = self.insts.len();
        for fork in forks {
            self.set_ways(fork, order(fork + 1, out));
        }
        Ok(())
    }

    fn atomic(&mut self, inner: &Expr) -> Result<(), String> {
        if let Expr::Repeat { child, lo, hi, greedy: true } = inner
            && let Some(set) = self.single(child)?
        {
            let run = Run { set, least: *lo, most: *hi, kind: RunKind::Possessive };
            return self.push(Inst::Run(run)).map(drop);
        }
        let at = self.push(Inst::Atomic { next: 0 })?;
        self.visit(inner)?;
        let next = self.push(Inst::Match)? + 1;
        self.insts[at] = Inst::Atomic { next };
        Ok(())
    }

    fn look(&mut self, inner: &Expr, kind: LookAround) -> Result<(), String> {
        let negative = matches!(kind, LookAround::LookAheadNeg | LookAround::LookBehindNeg);
        let behind = match kind {
            LookAround::LookBehind | LookAround::LookBehindNeg => Some(sizes(inner)),
            LookAround::LookAhead | LookAround::LookAheadNeg => None,
        };
        let at = self.push(Inst::Look { negative, behind, next: 0 })?;
        self.visit(inner)?;
        let next = self.push(Inst::Match)? + 1;
        self.insts[at] = Inst::Look { negative, behind, next };
        Ok(())
    }
}

fn too_large() -> String {
    format!("it is too large: unrolled, it has more than {MAX_INSTS} instructions")
}

fn unsupported(what: &str) -> String {
    format!("it has {what}, which is not supported")
}

/// How many characters `expr` can match.
fn sizes(expr: &Expr) -> Sizes {
    let exactly = |n| Sizes { least: n, most: n };
    match expr {
        Expr::Any { .. } | Expr::Delegate { .. } => exactly(1),
        Expr::Literal { val, .. } => exactly(val.chars().count()),
        Expr::GeneralNewline { .. } => Sizes { least: 1, most: 2 },
        Expr::Concat(parts) => parts.iter().map(sizes).fold(exactly(0), |sum, part| Sizes {
            least: sum.least.saturating_add(part.least),
            most: sum.most.saturating_add(part.most),
        }),
        Expr::Alt(ways) => {
            let either = |one: Sizes, other: Sizes| Sizes {
                least: one.least.min(other.least),
                most: one.most.max(other.most),
            };
            ways.iter().map(sizes).reduce(either).unwrap_or(exactly(0))
        }
        Expr::Group(inner) => sizes(inner),
        Expr::AtomicGroup(inner) => sizes(inner),
        Expr::Repeat { child, lo, hi, .. } => {
            let one = sizes(child);
            Sizes { least: one.least.saturating_mul(*lo), most: one.most.saturating_mul(*hi) }
        }
        Expr::Backref { .. } => Sizes { least: 0, most: usize::MAX },
        _ => exactly(0),
    }
}

/// Finds what each branch can begin with; returns what the whole program can begin with.
fn filter(insts: &mut [Inst], sets: &[CharSet]) -> ByteSet {
    if insts.len() > MAX_FILTERED {
        return ByteSet::ANY;
    }
    for at in 0..insts.len() {
        if let Inst::Fork(fork) = &insts[at] {
            let found = fork.ways.map(|way| firsts(insts, sets, way));
            if let Inst::Fork(fork) = &mut insts[at] {
                fork.firsts = found;
            }
        }
    }
    firsts(insts, sets, 0)
}

/// What a match from instruction `from` on can begin with: a superset, never less.
fn firsts(insts: &[Inst], sets: &[CharSet], from: usize) -> ByteSet {
    let mut found = ByteSet::default();
    let mut seen = vec![false; insts.len()];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        match &insts[at] {
            Inst::Match | Inst::Backref { .. } => return ByteSet::ANY,
            Inst::Char(set) => found.add(sets[*set].first_bytes()),
            Inst::Bytes(bytes) => match bytes.first() {
                Some(&byte) => found.add(ByteSet::of(byte)),
                None => open.push(at + 1),
            },
            Inst::Run(run) => {
                found.add(sets[run.set].first_bytes());
                if run.least == 0 {
                    open.push(at + 1);
                }
            }
            Inst::Fork(fork) => open.extend(fork.ways),
            Inst::Jump(to) => open.push(*to),
            Inst::Still { out, .. } => open.extend([*out, at + 1]),
            // Either set would do: that of the look-ahead, or of what follows it.
            Inst::Look { negative: false, behind: None, .. } => open.push(at + 1),
            Inst::Look { next, .. } => open.push(*next),
            Inst::Save(_) | Inst::Assert(_) | Inst::SearchStart | Inst::Atomic { .. } => {
                open.push(at + 1);
            }
        }
    }
    found
}
