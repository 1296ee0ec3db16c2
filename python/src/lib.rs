//! The command `sigprop` in a process of Python: what it writes becomes bytes, what it refuses a `ValueError`.

use std::{
    ffi::OsString,
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};
use sigprop::cli::{Caller, Reply};

/// How long Ctrl-C and progress wait at most.
const MOMENT: Duration = Duration::from_millis(50);
/// How long what was interrupted may take to keep what it has.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// What the command wrote, and its picture as SVG if it has one.
type Written<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// Runs a command, the name of the program left out. `progress` is called with how much is done and of how much.
///
/// Python may go on meanwhile, and signals are heard: an exception of their handlers, as `KeyboardInterrupt` is, ends the
/// command.
#[pyfunction]
#[pyo3(signature = (words, progress=None))]
fn run<'py>(py: Python<'py>, words: Vec<OsString>, progress: Option<&Bound<'py, PyAny>>) -> PyResult<Written<'py>> {
    let caller = Arc::new(Caller::default());
    let (sender, receiver) = mpsc::channel();
    let running = Arc::clone(&caller);
    thread::spawn(move || {
        // Nobody listens any more after an interruption.
        let _ = sender.send(running.run(words));
    });
    // Only what may be shared between threads goes where Python lets others run.
    let receiver = Mutex::new(receiver);
    let wait = |time| {
        py.detach(|| {
            receiver.lock().map_or(Err(RecvTimeoutError::Disconnected), |receiver| receiver.recv_timeout(time))
        })
    };
    let tell = || match (progress, caller.progress()) {
        (Some(progress), Some(state)) => progress.call1(state).map(drop),
        _ => Ok(()),
    };
    loop {
        match wait(MOMENT) {
            Ok(reply) => {
                tell()?;
                let Reply { output, picture, .. } = reply.map_err(PyValueError::new_err)?;
                return Ok((PyBytes::new(py, &output), picture.map(|picture| PyBytes::new(py, &picture))));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("sigprop failed; what it printed above is a bug worth reporting"));
            }
        }
        if let Err(interruption) = py.check_signals().and_then(|()| tell()) {
            caller.cancel();
            let _ = wait(LAST_MOMENT);
            return Err(interruption);
        }
    }
}

/// Runs the command line as `sigprop` in a shell does; its exit status.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| sigprop::cli::run(words))
}

/// The part of the package that is not Python.
#[pymodule]
fn _sigprop(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INIT_PY", sigprop::export::INIT_PY)?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)
}
