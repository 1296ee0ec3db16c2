//! Numbers, disks and folders at their limits.

use std::fs::File;

use super::{command, refused, run, small, stderr, text};

/// Every numeric flag of `predict` with extreme numbers: it answers or refuses immediately, without NaN.
#[test]
fn no_number_panics_or_hangs() {
    let shape = [("layers", "2"), ("width", "64"), ("seq-len", "16"), ("vocab", "100")];
    let others = [
        "heads",
        "kv-heads",
        "ffn",
        "decoder-seq-len",
        "skip-scale",
        "branch-scale",
        "window",
        "dropout",
        "attention-dropout",
        "drop-path",
        "token-repeat",
        "input-correlation",
        "grad-correlation",
        "seed",
        "dslm-k",
        "dslm-alpha",
    ];
    let numbers = [
        "0",
        "-1",
        "1",
        "3",
        "1e308",
        "-1e308",
        "5e-324",
        "nan",
        "inf",
        "9007199254740993",
        "18446744073709551616",
        "0.9999999999999999",
        "",
    ];
    for flag in shape.map(|(flag, _)| flag).into_iter().chain(others) {
        for number in numbers {
            let given = format!("--{flag}={number}");
            let mut arguments: Vec<String> = shape
                .iter()
                .filter(|(name, _)| *name != flag)
                .map(|(name, value)| format!("--{name}={value}"))
                .collect();
            let rest = ["--train", "--scheme=dslm", "--format=csv", "-q", given.as_str()];
            arguments.extend(rest.map(str::to_owned));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = run(&[&["predict"], arguments.as_slice()].concat());
            let said = stderr(&output);
            assert!(matches!(output.status.code(), Some(0 | 2)), "{given}: {said}");
            assert!(!said.contains("panicked"), "{given}: {said}");
            let rows = text(&output.stdout);
            assert!(!rows.contains("NaN") && !rows.contains(",inf") && !rows.contains(",-inf"), "{given}: {rows}");
        }
    }
}

/// Writing to /dev/full fails, and nobody can create files in /proc, not even root.
#[cfg(target_os = "linux")]
#[test]
fn full_disks_and_read_only_folders_are_told() {
    for (flag, target) in [("-o", "/dev/full"), ("--dump-stack", "/dev/full"), ("-o", "/proc/out.csv")] {
        let output = small("predict", &[flag, target]);
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", stderr(&output));
        assert!(stderr(&output).contains(&format!("cannot write {target}: ")), "{}", stderr(&output));
    }
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = command(&["models", "--format", "csv"]).stdout(full).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write to standard output: "), "{}", stderr(&output));
    // The refusal comes before sampling: this number of networks would take days.
    let many = ["--replicates", "1000000"];
    for (flag, target) in [("-o", "/proc/report"), ("--report", "/proc/report.html"), ("--plot", "/proc/plot.svg")] {
        let output = small("validate", &[many.as_slice(), &[flag, target]].concat());
        assert!(refused(&output).contains("cannot write /proc/"), "{}", stderr(&output));
    }
}
