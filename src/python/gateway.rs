//! Long work for Python, with the GIL released and Ctrl-C checked, and errors as exceptions.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{
    PyFileExistsError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError,
};
use pyo3::prelude::*;

use crate::base::error::{Error, Report, Result};
use crate::base::job::{Job, Phase};
use crate::base::threads::{self, caught, error_of, spawn};

/// The time between two checks for signals and reports of progress.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Work on fewer bytes is done before Ctrl-C or another thread could matter.
pub const MIN_GATEWAY_BYTES: usize = 1 << 17;

/// Runs `work` on `size` bytes; through the gateway unless there are few.
pub fn run_sized<T: Send>(
    py: Python<'_>,
    size: usize,
    phase: Phase,
    work: impl FnOnce(&Job) -> Result<T> + Send,
) -> PyResult<T> {
    let job = Job::new(phase, 0);
    if size < MIN_GATEWAY_BYTES {
        return caught(|| work(&job)).map_err(|error| to_python(py, error));
    }
    run(py, &job, None, work)
}

/// Runs `work` on a new thread with the GIL released. Ctrl-C, or an exception raised by `progress`,
/// stops the job; the work has always ended when this returns.
pub fn run<T: Send>(
    py: Python<'_>,
    job: &Job,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Job) -> Result<T> + Send,
) -> PyResult<T> {
    let done = AtomicBool::new(false);
    let caller = thread::current();
    let (outcome, failure) = thread::scope(|scope| {
        let handle = match spawn(scope, || {
            // Wakes the caller even if the work panics.
            let _wake = Wake(&done, &caller);
            let _job = job.on_this_thread();
            caught(|| work(job))
        }) {
            Ok(handle) => handle,
            Err(error) => return (Ok(Err(error)), None),
        };
        let mut failure = None;
        while !done.load(Ordering::Acquire) {
            py.detach(|| thread::park_timeout(POLL_INTERVAL));
            if failure.is_none()
                && let Err(error) = py.check_signals().and_then(|()| report(job, progress))
            {
                job.stop();
                failure = Some(error);
            }
        }
        (py.detach(|| handle.join()), failure)
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let value = outcome
        .unwrap_or_else(|cause| Err(error_of(cause.as_ref())))
        .map_err(|error| to_python(py, error))?;
    report(job, progress)?;
    Ok(value)
}

/// The check for Ctrl-C of work on a thread of Python itself.
pub fn check_signals() -> Result<()> {
    let checked = Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()));
    checked.map_err(|error| Error::Foreign(Box::new(error)))
}

impl From<bytemill_kernels::Error> for Error {
    fn from(error: bytemill_kernels::Error) -> Self {
        match error {
            bytemill_kernels::Error::Input(message) => Error::config(message),
            bytemill_kernels::Error::Bug(message) => Error::Bug(message),
        }
    }
}

struct Wake<'a>(&'a AtomicBool, &'a thread::Thread);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

fn report(job: &Job, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    if let Some(progress) = progress {
        // The end of a phase is reported even if the next one has begun.
        let now = job.progress();
        let mut states = job.take_ended();
        // `now` is outdated if its phase has just ended.
        if states.last().is_none_or(|last| last.0 != now.0) {
            states.push(now);
        }
        for (phase, done, total) in states {
            progress.call1((phase.name(), done, total))?;
        }
    }
    Ok(())
}

/// An error as the exception of its kind.
pub fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let (class, report) = match error {
        Error::Config(report) => ("ConfigError", report),
        Error::Corpus(report) => ("CorpusError", report),
        Error::Tokenizer(report) => ("TokenizerError", report),
        Error::Tokens(report) => ("TokensError", report),
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
        Error::Memory(what) => return PyMemoryError::new_err(what),
        Error::Bug(_) => return PyRuntimeError::new_err(error.to_string()),
        Error::Foreign(error) => {
            return match error.downcast::<PyErr>() {
                Ok(error) => *error,
                Err(error) => PyRuntimeError::new_err(error.to_string()),
            };
        }
        Error::Io { path, source } => {
            let name = path.display().to_string();
            // Python chooses FileNotFoundError and so on by the number.
            return match source.raw_os_error() {
                Some(number) => {
                    let text = source.to_string();
                    let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
                    PyOSError::new_err((number, text, name))
                }
                None if source.kind() == ErrorKind::AlreadyExists => {
                    PyFileExistsError::new_err(format!("{name}: {source}"))
                }
                None => PyOSError::new_err(format!("{name}: {source}")),
            };
        }
    };
    let Report { message, hint } = report;
    py.import("bytemill.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message, hint)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// More threads are never faster.
const MAX_THREADS: i64 = 1024;

/// The number of threads to use: as requested, else `BYTEMILL_THREADS`, else all cores that the process
/// may use.
pub fn threads(py: Python<'_>, requested: Option<i64>) -> PyResult<usize> {
    let refuse = |what: String| to_python(py, Error::config(what).with_hint("use 1 or more"));
    if let Some(n) = requested {
        return if n > 0 {
            Ok(n.min(MAX_THREADS) as usize)
        } else {
            Err(refuse(format!("threads must be ≥ 1, got {n}")))
        };
    }
    match std::env::var("BYTEMILL_THREADS") {
        Ok(text) if !text.is_empty() => match text.trim().parse::<i64>() {
            Ok(n) if n > 0 => Ok(n.min(MAX_THREADS) as usize),
            _ => Err(refuse(format!("BYTEMILL_THREADS={text:?} is not a number of threads"))),
        },
        _ => Ok(threads::available()),
    }
}
