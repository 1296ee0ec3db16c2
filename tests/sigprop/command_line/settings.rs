//! Defaults from `sigprop.toml` and from the environment.

use std::{fs, process::Output};

use tempfile::TempDir;

use super::{command, folder, json, path, refused, report::document, stderr, stdout, written};

/// Runs in a folder below that of the settings file, with these variables.
fn run_below(folder: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let below = folder.path().join("deep/er");
    fs::create_dir_all(&below).expect("writable");
    let mut command = command(arguments);
    command.current_dir(below).envs(variables.iter().copied()).output().expect("the command starts")
}

fn sites(output: &Output) -> usize {
    stdout(output).lines().count() - 1
}

const SMALL: &str =
    "width = 64\nseq-len = 16\nvocab = 100\n[predict]\nlayers = 3\nzipf = true\n[validate]\nlayers = 5\n";

#[test]
fn a_flag_ranks_above_the_environment_above_the_file() {
    let folder = folder();
    written(&folder, "sigprop.toml", SMALL.as_bytes());
    let predict = |arguments: &[&str], variables: &[(&str, &str)]| {
        run_below(&folder, &[&["predict", "--format", "csv"], arguments].concat(), variables)
    };
    let from_file = predict(&[], &[]);
    assert_eq!(sites(&from_file), 5);
    let note = stderr(&from_file);
    assert!(note.contains("sigprop.toml: --layers=3 --zipf\n"), "{note}");
    assert!(note.contains("sigprop.toml: --seq-len=16 --vocab=100 --width=64\n"), "{note}");
    let from_environment = predict(&[], &[("SIGPROP_LAYERS", "4")]);
    assert_eq!(sites(&from_environment), 6);
    assert!(stderr(&from_environment).contains("note: from environment: --layers=4\n"));
    assert_eq!(sites(&predict(&["--layers", "2"], &[("SIGPROP_LAYERS", "4")])), 4);
    let off = predict(&[], &[("SIGPROP_ZIPF", "false")]);
    assert!(stderr(&off).contains("sigprop.toml: --layers=3\n"), "{}", stderr(&off));
    let isolated = ["--isolated", "--layers", "1", "--width", "64", "-q"];
    assert_eq!(sites(&predict(&isolated, &[("SIGPROP_LAYERS", "4")])), 3);
    // With -q nothing is written to standard error.
    assert!(stderr(&predict(&["-q"], &[])).is_empty());
}

#[test]
fn what_does_not_go_with_the_command_line_gives_way() {
    let folder = folder();
    written(&folder, "sigprop.toml", SMALL.as_bytes());
    let uniform = run_below(&folder, &["predict", "--uniform", "-v", "--format", "csv"], &[]);
    assert_eq!(sites(&uniform), 5);
    assert!(stderr(&uniform).contains("sigprop.toml:6: --zipf gives way to --uniform"), "{}", stderr(&uniform));
    // A flag that requires another one has no effect without it, wherever it is set.
    let limited = "[validate]\nmax-replicates = 2\ntarget-error = \"50%\"\n";
    written(&folder, "sigprop.toml", format!("{SMALL}{}", limited.replace("[validate]\n", "")).as_bytes());
    let output = run_below(&folder, &["validate", "--json", "--replicates", "1"], &[]);
    assert!(json(&output)["replicates"].as_u64() <= Some(2), "{}", stdout(&output));
}

#[test]
fn reports_tell_what_came_from_elsewhere() {
    let folder = folder();
    written(&folder, "sigprop.toml", SMALL.as_bytes());
    let target = path(&folder, "report.html");
    stdout(&run_below(&folder, &["predict", "--report", &target], &[("SIGPROP_SEED", "9")]));
    let page = fs::read_to_string(&target).expect("readable");
    assert!(page.contains("from environment: --seed=9"));
    assert!(page.contains("--width=64"));
    let run = document(&target, "run");
    assert_eq!(run["settings"].as_array().map(Vec::len), Some(3), "{run}");
    assert!(run["command"].as_array().expect("words").contains(&"--layers=3".into()), "{run}");
}

#[test]
fn bad_settings_are_refused_with_file_and_line() {
    let folder = folder();
    for (text, place, hint) in [
        ("seq-len = 16\nlayes = 3\n", ":2: ", "unknown key `layes`; did you mean layers?"),
        ("[predict]\nmax-replicates = 3\n", ":2: ", "unknown key `max-replicates`"),
        ("[predcit]\nlayers = 3\n", ":1: ", "unknown key `predcit`; did you mean predict?"),
        ("\nlayers = 0\n", ":2: ", "invalid value '0' for '--layers <N>': expected a whole number from 1"),
        ("layers = [1, 2]\n", ":1: ", "expected a text, a number, true or false, got array"),
        ("causal = 3\n", ":1: ", "--causal: expected true or false, got \"3\""),
        ("zipf = true\nuniform = true\n", ":1: ", "'--zipf' cannot be used with '--uniform'"),
        ("layers = = 3\n", ":1: ", "="),
        ("help = true\n", ":1: ", "unknown key `help`"),
    ] {
        written(&folder, "sigprop.toml", text.as_bytes());
        let output = run_below(&folder, &["predict"], &[]);
        let message = refused(&output);
        assert!(message.contains(&format!("sigprop.toml{place}")) && message.contains(hint), "{text}: {message}");
    }
    fs::remove_file(folder.path().join("sigprop.toml")).expect("it is there");
    let output = run_below(&folder, &["schemes"], &[("SIGPROP_FORMAT", "xml")]);
    assert!(refused(&output).contains("SIGPROP_FORMAT: invalid value 'xml'"), "{}", stderr(&output));
    let output = run_below(&folder, &["schemes"], &[("SIGPROP_FORMT", "xml")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("SIGPROP_FORMT is the variable of no flag; did you mean SIGPROP_FORMAT?"));
}
