//! The command `sigprop` inside a Python process: its output becomes bytes, and a refusal becomes a `ValueError`.

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

/// The longest wait between two checks for Ctrl-C and two reports of progress.
const MOMENT: Duration = Duration::from_millis(50);
/// How long an interrupted command may take to save its results.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// The output of the command, and its picture as SVG, `None` if it has none.
type Written<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// Runs a command, given without the name of the program. `progress` is called with the work done and the total.
///
/// Other Python threads can run meanwhile. Signals are handled: an exception of a handler, such as `KeyboardInterrupt`,
/// ends the command.
#[pyfunction]
#[pyo3(signature = (words, progress=None))]
fn run<'py>(py: Python<'py>, words: Vec<OsString>, progress: Option<&Bound<'py, PyAny>>) -> PyResult<Written<'py>> {
    let caller = Arc::new(Caller::default());
    let (sender, receiver) = mpsc::channel();
    let running = Arc::clone(&caller);
    thread::spawn(move || {
        // After an interruption nobody receives the reply.
        let _ = sender.send(running.run(words));
    });
    // A closure that releases the GIL may only use values that threads can share.
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

/// Runs the command line as `sigprop` does in a shell, and returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| sigprop::cli::run(words))
}

/// The compiled part of the Python package.
#[pymodule]
fn _sigprop(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INIT_PY", sigprop::export::INIT_PY)?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)
}
