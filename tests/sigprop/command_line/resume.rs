//! Runs that are interrupted and resumed.

use std::{
    fs,
    path::Path,
    process::{self, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{command, files, folder, path, refused, run, stderr, stdout, text};

/// The arguments of a run with this number of replicates into `folder`, new or resumed by `flag`.
fn arguments<'a>(replicates: &'a str, flag: &'a str, folder: &'a str) -> Vec<&'a str> {
    let model = ["validate", "--layers", "3", "--width", "64", "--seq-len", "32", "--vocab", "100"];
    [model.as_slice(), &["--weights", "--replicates", replicates, flag, folder]].concat()
}

#[cfg(unix)]
fn interrupt(child: &process::Child) {
    let killed = process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(killed.success());
}

/// Waits until a run has written this number of bytes to its journal.
fn until_longer(journal: &Path, bytes: u64) {
    let start = Instant::now();
    while fs::metadata(journal).map_or(0, |found| found.len()) < bytes {
        assert!(start.elapsed() < Duration::from_secs(600), "{}: no longer than {bytes} bytes", journal.display());
        sleep(Duration::from_millis(1));
    }
}

/// All files, including those in subfolders.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let path = folder.join(&name);
        if path.is_dir() { contents(&path) } else { vec![(name, fs::read(path).expect("readable"))] }
    };
    files(folder).into_iter().flat_map(read).collect()
}

/// The arguments of two runs of a suite into `folder`, new or resumed by `flag`.
fn suite<'a>(flag: &'a str, folder: &'a str) -> Vec<&'a str> {
    let suite = ["validate", "--suite", "models", "--group", "peri", "--group", "sandwich"];
    [suite.as_slice(), &["--max-replicates", "2", "--seeds", "3,4", flag, folder]].concat()
}

/// Kills a run at `kills` different times. Each run resumes the one that was killed before it; after one that ends by
/// itself, a new one starts. All finished runs leave the same files as a run that was never killed.
fn killed(arguments: impl for<'a> Fn(&'a str, &'a str) -> Vec<&'a str>, kills: u64) {
    let folder = folder();
    let whole = path(&folder, "whole");
    let start = Instant::now();
    stdout(&run(&arguments("-o", &whole)));
    let full = start.elapsed();
    let expected = contents(Path::new(&whole));
    assert!(expected.iter().all(|(name, _)| !name.ends_with(".journal")));

    let (mut number, mut done) = (0, 0);
    while done < kills || number == 0 {
        number += 1;
        let target = path(&folder, &format!("killed{number}"));
        loop {
            let mut child = command(&arguments("--resume", &target))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts");
            if done < kills {
                // The golden ratio spreads the times evenly.
                sleep(full.mul_f64(0.3 * (done as f64 * 0.618_033_988_75).fract()));
                child.kill().expect("a child can be killed");
            }
            let output = child.wait_with_output().expect("the command ends");
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.code(), None, "{}", stderr(&output));
            done += 1;
        }
        assert_eq!(contents(Path::new(&target)), expected, "after {done} kills");
    }
}

#[test]
fn a_killed_run_goes_on_to_the_same_bytes() {
    killed(|flag, folder| arguments("200", flag, folder), 10);
}

#[test]
#[ignore = "long: minutes"]
fn two_hundred_kills() {
    killed(|flag, folder| arguments("1000", flag, folder), 200);
}

#[test]
fn a_killed_suite_goes_on_to_the_same_bytes() {
    killed(suite, 4);
}

/// No case is sampled twice, so a suite that is interrupted again and again ends, too.
#[cfg(unix)]
#[test]
fn an_interrupted_suite_is_refused_to_others_and_goes_on() {
    let folder = folder();
    let target = path(&folder, "suite");
    let child = command(&suite("-o", &target)).stderr(Stdio::piped()).spawn().expect("the command starts");
    let journal = Path::new(&target).join("cases.journal");
    until_longer(&journal, 1_000);
    interrupt(&child);
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("; --resume "), "{}", stderr(&output));
    assert!(refused(&run(&suite("-o", &target))).contains("go on with --resume"));
    let others = [suite("--resume", &target), vec!["--full"]].concat();
    assert!(refused(&run(&others)).contains("another full has left this: expected true, got false"));
    assert!(run(&suite("--resume", &target)).status.success());
    assert!(!journal.exists());
}

/// Networks whose records are torn, damaged or missing are sampled again.
#[cfg(unix)]
#[test]
fn an_interrupted_run_is_refused_to_others_and_goes_on() {
    let folder = folder();
    let target = path(&folder, "report");
    let child = command(&arguments("2000", "-o", &target)).stderr(Stdio::piped()).spawn().expect("the command starts");
    let journal = Path::new(&target).join("replicates.journal");
    until_longer(&journal, 100_000);
    let locked = run(&arguments("2000", "--resume", &target));
    assert!(refused(&locked).contains("another run is writing into this folder"), "{}", stderr(&locked));
    interrupt(&child);
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("; --resume "), "{}", stderr(&output));
    assert_eq!(files(Path::new(&target)), ["replicates.journal", "report.csv", "summary.json"]);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(Path::new(&target).join("summary.json")).expect("written")).expect("JSON");
    let told = summary["replicates"].as_u64().expect("a number");
    assert!((1..2000).contains(&told), "{told}");

    let again = run(&arguments("2000", "-o", &target));
    assert!(refused(&again).contains("go on with --resume"), "{}", stderr(&again));
    let other = run(&[arguments("2000", "--resume", &target), vec!["--seed", "1"]].concat());
    assert!(refused(&other).contains("another seed has left this: expected 1, got 0"), "{}", stderr(&other));
    let fewer = run(&arguments("100", "--resume", &target));
    assert!(refused(&fewer).contains("another replicates"), "{}", stderr(&fewer));
    refused(&run(&[arguments("2000", "--resume", &target), vec!["-o", &target]].concat()));

    let whole = path(&folder, "whole");
    let mut bytes = fs::read(&journal).expect("readable");
    bytes.truncate(bytes.len() - 7);
    fs::write(&journal, bytes).expect("writable");
    let resumed = run(&arguments("2000", "--resume", &target));
    let uninterrupted = run(&arguments("2000", "-o", &whole));
    assert_eq!(stdout(&resumed), stdout(&uninterrupted));
    assert_eq!(contents(Path::new(&target)), contents(Path::new(&whole)));
}

/// An interrupted run writes the report of the replicates that are done.
#[cfg(unix)]
#[test]
fn an_interrupted_validation_keeps_what_was_done() {
    let folder = folder();
    let target = path(&folder, "report");
    let arguments = ["validate", "--layers", "4", "--width", "64", "--seq-len", "32", "--vocab", "100"];
    let many = ["--replicates", "1000000", "--threads", "1", "-o", &target];
    let child = command(&[arguments.as_slice(), &many].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    until_longer(&Path::new(&target).join("replicates.journal"), 30_000);
    interrupt(&child);
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after"), "{}", stderr(&output));
    assert_eq!(files(Path::new(&target)), ["replicates.journal", "report.csv", "summary.json"]);
}

/// A run with a target error makes the same decision after an interruption.
#[test]
fn a_target_error_is_reached_after_a_kill_too() {
    let folder = folder();
    let (whole, target) = (path(&folder, "whole"), path(&folder, "killed"));
    let until = |flag, folder| [arguments("4", flag, folder), vec!["--target-error", "4%"]].concat();
    let expected = run(&until("-o", &whole));
    let mut child = command(&until("--resume", &target)).stdout(Stdio::null()).spawn().expect("the command starts");
    let journal = Path::new(&target).join("replicates.journal");
    until_longer(&journal, 30_000);
    child.kill().expect("a child can be killed");
    child.wait().expect("it ends");
    let resumed = run(&until("--resume", &target));
    assert_eq!(stdout(&resumed), stdout(&expected));
    assert!(!text(&resumed.stdout).contains("networks sampled: 4,"));
    assert_eq!(contents(Path::new(&target)), contents(Path::new(&whole)));
}

/// Shards leave the same files as one run, in any order and on several machines.
#[test]
fn shards_are_gathered_to_the_bytes_of_one_run() {
    let folder = folder();
    let (whole, target) = (path(&folder, "whole"), path(&folder, "shards"));
    let expected = stdout(&run(&arguments("10", "-o", &whole))).to_owned();
    let shard = |part| run(&[arguments("10", "--resume", &target), vec!["--shard", part]].concat());
    for (part, told) in [("3/3", "3 of 3"), ("1/3", "4 of 4"), ("1/3", "4 of 4")] {
        let output = shard(part);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("shard {part}: {told} networks are in ")), "{}", stderr(&output));
    }
    // The run that gathers samples the second part.
    assert_eq!(files(Path::new(&target)), ["replicates.journal.1-of-3", "replicates.journal.3-of-3"]);
    assert_eq!(stdout(&run(&arguments("10", "--resume", &target))), expected);
    assert_eq!(contents(Path::new(&target)), contents(Path::new(&whole)));

    let other = path(&folder, "other");
    stdout(&run(&[arguments("10", "--resume", &other), vec!["--shard", "1/2", "--seed", "7"]].concat()));
    let refusal = run(&arguments("10", "--resume", &other));
    assert!(refused(&refusal).contains("another seed has left this: expected 0, got 7"), "{}", stderr(&refusal));
    assert_eq!(files(Path::new(&other)), ["replicates.journal.1-of-2"]);
    assert!(run(&[arguments("10", "--resume", &other), vec!["--seed", "7"]].concat()).status.success());
    refused(&run(&[arguments("10", "-o", &other), vec!["--shard", "1/2"]].concat()));
    let endless = vec!["--shard", "1/2", "--target-error", "1%"];
    refused(&run(&[arguments("10", "--resume", &other), endless].concat()));
    let wrong = run(&[arguments("10", "--resume", &other), vec!["--shard", "3/2"]].concat());
    assert!(refused(&wrong).contains("expected a part such as 2/4"), "{}", stderr(&wrong));
}

/// A killed shard resumes where it was.
#[test]
#[cfg(unix)]
fn an_interrupted_shard_goes_on() {
    let folder = folder();
    let (whole, target) = (path(&folder, "whole"), path(&folder, "shards"));
    let shard = || [arguments("400", "--resume", &target), vec!["--shard", "2/2"]].concat();
    let child = command(&shard()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let journal = Path::new(&target).join("replicates.journal.2-of-2");
    until_longer(&journal, 5_000);
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("of 200 networks are in"), "{}", stderr(&output));
    assert!(run(&shard()).status.success());
    let expected = stdout(&run(&arguments("400", "-o", &whole))).to_owned();
    assert_eq!(stdout(&run(&arguments("400", "--resume", &target))), expected);
    assert_eq!(contents(Path::new(&target)), contents(Path::new(&whole)));
}

/// Shards of the cases of a suite, over several seeds.
#[test]
fn shards_of_a_suite_are_gathered() {
    let folder = folder();
    let (whole, target) = (path(&folder, "whole"), path(&folder, "shards"));
    let expected = stdout(&run(&suite("-o", &whole))).to_owned();
    for part in ["2/2", "1/2"] {
        let output = run(&[suite("--resume", &target), vec!["--shard", part]].concat());
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    }
    assert_eq!(stdout(&run(&suite("--resume", &target))), expected);
    assert_eq!(contents(Path::new(&target)), contents(Path::new(&whole)));
}

/// A map over arguments of a scheme, some of which the scheme refuses, with a picture.
const MAP: [&str; 10] = [
    "phase",
    "--layers=4",
    "--width=64",
    "--seq-len=16",
    "--scheme=gains:1,1,1,1,1",
    "--x=qk=0.5..8:4",
    "--y=ratio=-1..1:3",
    "--causal",
    "--format=json",
    "--plot",
];

/// Schemes in sorted order, some of them not defined for the network, with a picture.
const SCHEMES: [&str; 8] = [
    "compare",
    "--layers=4",
    "--width=64",
    "--seq-len=16",
    "--schemes=all",
    "--sort=backward",
    "--format=json",
    "--plot",
];

/// Runs shards 3 and 1 of three of the command `run_of`; shards 1 and 3 have `counts` items, and `items` is the word
/// for these. Then runs the whole command, which predicts the second shard. Output, notes and picture equal those of a
/// single run. The last word of `run_of` is the flag of the picture. A run with another value of the flag `other.0` is
/// refused.
fn gathered(run_of: &[&str], (items, counts): (&str, [usize; 2]), other: (&str, &str)) {
    let folder = folder();
    let [target, picture, expected] = ["shards", "picture.svg", "expected.svg"].map(|name| path(&folder, name));
    let of = |picture: &str, more: &[&str]| run(&[run_of, &[picture], more].concat());
    let whole = of(&expected, &[]);
    for (part, count) in [("3/3", counts[1]), ("1/3", counts[0]), ("1/3", counts[0])] {
        let output = of(&picture, &["--resume", &target, "--shard", part]);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        let told =
            format!("shard {part}: {count} of {count} {items} are in {target}; without --shard all are gathered");
        assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    }
    let journals = ["1-of-3", "3-of-3"].map(|part| format!("{items}.journal.{part}"));
    assert_eq!(files(Path::new(&target)), journals);
    assert!(!Path::new(&picture).exists());
    let (flag, message) = other;
    let refusal = of(&picture, &[flag, "--resume", &target]);
    assert!(refused(&refusal).contains(message), "{}", stderr(&refusal));
    assert_eq!(files(Path::new(&target)), journals);
    let output = of(&picture, &["--resume", &target]);
    assert_eq!(stdout(&output), stdout(&whole));
    assert_eq!(stderr(&output), stderr(&whole));
    assert_eq!(fs::read(&picture).expect("drawn"), fs::read(&expected).expect("drawn"));
    assert!(files(Path::new(&target)).is_empty());
    refused(&of(&picture, &["--shard", "1/2"]));
}

#[test]
fn shards_of_a_map_are_gathered() {
    gathered(&MAP, ("cells", [4, 4]), ("--uniform", "another input has left this: expected "));
}

#[test]
fn shards_of_a_comparison_are_gathered() {
    let count = sigprop::compare::all_schemes().len();
    let counts = [count.div_ceil(3), count / 3];
    let other = ("--theory=mean-field", "another theory has left this: expected MeanField, got FiniteWidth");
    gathered(&SCHEMES, ("schemes", counts), other);
}

/// A shard and the run that gathers are interrupted. The same command resumes and ends with the bytes of a single run.
#[cfg(unix)]
#[test]
fn an_interrupted_map_goes_on() {
    let folder = folder();
    let target = path(&folder, "map");
    let map = ["phase", "--layers=12", "--x=weight-gain=0.2..5:9", "--y=branch-scale=0.05..2:3"];
    let interrupted = |more: &[&str], journal: &str| {
        let arguments = [map.as_slice(), &["--resume", &target], more].concat();
        let mut command = command(&arguments);
        // Several threads would finish their cells at the same time.
        command.env("RAYON_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let journal = Path::new(&target).join(journal);
        until_longer(&journal, 2_000);
        interrupt(&child);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        stderr(&output).to_owned()
    };
    let told = interrupted(&["--shard", "2/2"], "cells.journal.2-of-2");
    assert!(told.contains("of 13 cells are in ") && told.contains("the same command goes on"), "{told}");
    let told = interrupted(&[], "cells.journal");
    assert!(told.contains("of 27 cells; --resume ") && told.contains(" goes on"), "{told}");
    let resumed = run(&[map.as_slice(), &["--resume", &target]].concat());
    assert_eq!(stdout(&resumed), stdout(&run(&map)));
    assert!(files(Path::new(&target)).is_empty());
}
