//! The files in an archive as one source.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::archive::{Archive, Member};
use super::block::{Block, Content};
use super::blocks::{Blocks, Context};
use super::choice::{Chosen, is_about};
use super::inputs::Position;
use super::kind::{Format, Kind};
use super::reading::{Fault, STRAY, Skipped, Trouble};
use super::stream::{Closing, Cut, Stream};
use super::unpack::{Input, Together, unpack};
use crate::base::error::Result;

/// The blocks of an archive.
pub(super) struct Members<'a> {
    name: &'a str,
    archive: io::Result<Box<dyn Archive>>,
    closing: Closing<'a>,
    /// Where to begin, until that was done.
    from: Option<Position>,
    /// The number of the present member, or of the next.
    part: u64,
    open: Option<Stream>,
    /// Whether the open one is packed once more, and what all such unpack to.
    open_packed: bool,
    packed: Together,
    over: bool,
}

impl<'a> Members<'a> {
    pub(super) fn new(
        name: &'a str,
        archive: io::Result<Box<dyn Archive>>,
        closing: Closing<'a>,
        from: Position,
    ) -> Self {
        let size = closing.storage.as_ref().map(|storage| storage.size());
        let packed = Together::new(Arc::clone(&closing.passed), size);
        Members {
            name,
            archive,
            closing,
            from: Some(from),
            part: 0,
            open: None,
            open_packed: false,
            packed,
            over: false,
        }
    }

    /// Opens the next member; false at the end.
    fn open_next(&mut self, context: &Context<'_>, skipped: &mut Skipped) -> Result<bool> {
        let next = match &mut self.archive {
            Ok(archive) => archive.next(),
            Err(error) => Err(std::mem::replace(error, io::ErrorKind::Other.into())),
        };
        let Member { name, is_empty, input } = match next {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(false),
            Err(error) => {
                return match Trouble::of_io(error) {
                    Trouble::Stop(error) => Err(error),
                    Trouble::Fault(fault, what, hint) => context
                        .reading
                        .fault(fault, skipped, || (format!("{}: {what}", self.name), hint))
                        .map(|()| false),
                };
            }
        };
        match context.reading.choice.of(&name) {
            Chosen::Included => {}
            Chosen::Open if !(is_about(&name) || (is_empty && Kind::named(&name).is_none())) => {}
            chosen => {
                // What globs keep out was asked for; the rest is reported.
                if chosen == Chosen::Open {
                    skipped.add(STRAY, 1);
                }
                self.part += 1;
                return Ok(true);
            }
        }
        let kind = Kind::of_name(&name);
        let name = format!("{}: {name}", self.name);
        match kind.format {
            Format::Text | Format::Jsonl | Format::Separated(_) => {
                self.open_packed = !kind.is_plain();
                let input = match self.open_packed {
                    true => self.packed.guard(unpacked(input, kind, context), context.reading),
                    false => input,
                };
                self.open = Some(Stream::new(name, kind.format, input));
                Ok(true)
            }
            _ => {
                self.part += 1;
                let report = || {
                    (
                        format!("{name}: {kind} inside an archive is not read"),
                        "unpack the outer one",
                    )
                };
                context.reading.fault(Fault::NotText, skipped, report).map(|()| true)
            }
        }
    }

    /// Goes to where the work is to go on.
    fn seek(&mut self, to: Position, context: &Context<'_>) -> Result<()> {
        // What was left out on the way was counted then.
        let mut before = Skipped::default();
        while self.part < to.part {
            if !self.open_next(context, &mut before)? {
                self.over = true;
                return Ok(());
            }
            if let Some(mut stream) = self.open.take() {
                if self.open_packed {
                    // As the first time, it counts for how much there is of such.
                    stream.pass_over();
                }
                self.part += 1;
            }
        }
        if to.offset > 0
            && self.open_next(context, &mut before)?
            && let Some(stream) = &mut self.open
        {
            stream.seek(to, context)?;
        }
        Ok(())
    }
}

/// What a packed member holds; one that cannot even be begun is told of when it is read.
fn unpacked(input: Input, kind: Kind, context: &Context<'_>) -> Input {
    let passed = Arc::new(AtomicU64::new(0));
    let counted = Box::new(Counted { input, passed: Arc::clone(&passed) });
    match unpack(counted, kind.packing, passed, 64 << 10, context.reading) {
        Ok(input) => input,
        Err(error) => Box::new(Failing(Some(error))),
    }
}

struct Counted {
    input: Input,
    passed: Arc<AtomicU64>,
}

impl io::Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.passed.fetch_add(n as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(n)
    }
}

struct Failing(Option<io::Error>);

impl io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl<'a> Blocks<'a> for Members<'a> {
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>> {
        if let Some(from) = self.from.take() {
            self.seek(from, context)?;
        }
        if self.over {
            return Ok(None);
        }
        let mut skipped = Skipped::default();
        loop {
            let Some(stream) = &mut self.open else {
                if self.open_next(context, &mut skipped)? {
                    continue;
                }
                self.over = true;
                return self.closing.last(skipped).map(Some);
            };
            let Some(Cut { content, skipped: mut more, ends }) = stream.next(context)? else {
                self.open = None;
                continue;
            };
            skipped.take(&mut more);
            let mut after = Position { part: self.part, ..stream.at };
            if ends {
                self.part += 1;
                self.open = None;
                after = Position { part: self.part, ..Position::default() };
            }
            if matches!(content, Content::Nothing) && skipped.is_empty() {
                continue;
            }
            let (number, weight) = (self.closing.number, self.closing.weight());
            return Ok(Some(Block { number, after, ends_source: false, weight, content, skipped }));
        }
    }
}
