//! Bytes that come once, from front to back: nobody knows how many, nor when.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::reading::Trouble;
use super::unpack::Input;
use crate::base::error::{Error, Result};

/// After so long without bytes, whether to wait on is looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// Where bytes come from.
pub trait Pipe: Send + Sync + fmt::Debug {
    /// Begins to read, which can be done once. Reading ends with an error when `stopped` is true;
    /// `passed` counts what was read.
    fn open(&self, stopped: Arc<AtomicBool>, passed: Arc<AtomicU64>) -> Result<Input>;
}

/// Somebody who has bytes, now or later.
pub trait Giver: Send {
    /// The next bytes: None if there are none yet after so long, an empty list at the end.
    fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>>;
}

/// Bytes of somebody who gives them, as a reader.
pub struct Given<G> {
    giver: G,
    stopped: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    block: Vec<u8>,
    /// How much of `block` was read.
    at: usize,
    over: bool,
}

impl<G: Giver> Given<G> {
    /// A reader of what is given.
    pub fn new(giver: G, stopped: Arc<AtomicBool>, passed: Arc<AtomicU64>) -> Self {
        Given { giver, stopped, passed, block: Vec::new(), at: 0, over: false }
    }
}

impl<G: Giver> Read for Given<G> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() && !self.over {
            if self.stopped.load(Relaxed) {
                return Err(Trouble::Stop(Error::Interrupted).into_io());
            }
            let next = self.giver.next(PATIENCE).map_err(|e| Trouble::Stop(e).into_io())?;
            if let Some(block) = next {
                self.over = block.is_empty();
                (self.block, self.at) = (block, 0);
            }
        }
        let n = buffer.len().min(self.block.len() - self.at);
        buffer[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        self.passed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}
