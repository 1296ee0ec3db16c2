//! Runs the commands of the pages as a reader would, and compares their output with the page.
//!
//! In a block `sh` every line with the word `sigprop` is run by `sh`, in one folder per page. The last line exits with
//! the status that the block gives (`sh (exit=1)`), all others with 0. A block `text` directly after it is the output
//! of the last line, standard error after standard output; `…` marks an omission. A block with `(file=NAME)` is that
//! file from there on. Files that every page may use are in the folder of [`desk`]. The commands of a block with `(not
//! run)` take minutes to hours; sigprop must accept their command lines.
//!
//! `SIGPROP_BOOK=write` writes the outputs anew.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Output, Stdio},
};

use rayon::prelude::*;
use tempfile::TempDir;

use super::output::{is_shown, renew, text};
use super::{Page, ROOT};
use crate::command_line::undisturbed;

/// The config of a small GPT-2.
const CONFIG: &str = r#"{"model_type": "gpt2", "n_layer": 12, "n_embd": 64, "n_head": 4, "n_positions": 64,
    "vocab_size": 500}"#;

/// The errors that were found on a page, and the page with its outputs written anew.
struct Followed {
    wrong: Vec<String>,
    renewed: String,
}

#[test]
fn commands_do_what_the_pages_say() {
    let is_followed = |page: &Page| {
        let path = page.path.to_str().expect("a path is text");
        path == "README.md" || path.starts_with("docs/")
    };
    let followed: Vec<Page> = Page::all().into_iter().filter(is_followed).collect();
    let found: Vec<Followed> = followed.par_iter().map(follow).collect();
    if env::var_os("SIGPROP_BOOK").is_some_and(|wish| wish == "write") {
        for (page, Followed { renewed, .. }) in followed.iter().zip(&found) {
            fs::write(Path::new(ROOT).join(&page.path), renewed).expect("writable");
        }
    }
    let wrong: Vec<String> = found.into_iter().flat_map(|followed| followed.wrong).collect();
    assert!(wrong.is_empty(), "{}\n(SIGPROP_BOOK=write writes outputs anew)", wrong.join("\n\n"));
}

fn follow(page: &Page) -> Followed {
    let folder = desk();
    let mut followed = Followed { wrong: Vec::new(), renewed: String::new() };
    let (mut copied, mut shown) = (0, None);
    for fence in page.fences() {
        let place = page.place(fence.range.start);
        match fence.language() {
            "sh" if fence.note() == Some("not run") => {
                shown = None;
                let output = read(&folder, &fence.text);
                if !output.status.success() {
                    followed.wrong.push(format!("{place}: would not run\n{}", text(&output)));
                }
            }
            "sh" => {
                let commands = fence.commands();
                shown = None;
                for (index, command) in commands.iter().enumerate() {
                    let last = index + 1 == commands.len();
                    let status = fence.attribute("exit").filter(|_| last).unwrap_or("0");
                    let output = run(&folder, command);
                    let text = text(&output);
                    if output.status.code().map(|code| code.to_string()).as_deref() != Some(status) {
                        followed.wrong.push(format!("{place}: {command}\nexpected exit {status}, got\n{text}"));
                    }
                    shown = last.then_some(text);
                }
            }
            "text" => {
                let Some(text) = shown.take() else { continue };
                if !is_shown(&fence.text, &text) {
                    let not_there = fence.text.lines().find(|line| !is_shown(&format!("…{line}\n…"), &text));
                    followed.wrong.push(format!("{place}: is not what is put out, from {not_there:?} on"));
                    followed.renewed.push_str(&page.text[copied..fence.range.start]);
                    followed.renewed.push_str(&renew(&fence.text, &text));
                    copied = fence.range.end;
                }
            }
            _ => shown = None,
        }
        if let Some(name) = fence.attribute("file") {
            fs::write(folder.path().join(name), &fence.text).expect("writable");
        }
    }
    followed.renewed.push_str(&page.text[copied..]);
    followed
}

/// A folder with the files of a reader: a config, the same config in a model's folder, ids, a text, the data of the
/// repository.
fn desk() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name| folder.path().join(name);
    symlink(Path::new(ROOT).join("data"), at("data")).expect("a link");
    fs::create_dir(at("my-gpt2")).expect("a folder");
    fs::write(at("config.json"), CONFIG).expect("writable");
    fs::write(at("my-gpt2/config.json"), CONFIG).expect("writable");
    fs::write(at("book.txt"), "To be, or not to be: that is the question.").expect("writable");
    fs::copy(Path::new(ROOT).join("fuzz/seeds/tokens/ids.npy"), at("ids.npy")).expect("a file");
    folder
}

fn run(folder: &TempDir, command: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_sigprop")).parent().expect("a program is in a folder");
    let path = env::var("PATH").unwrap_or_default();
    let mut shell = undisturbed("sh");
    shell.args(["-c", command]).current_dir(folder.path()).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", program.display())).output().expect("the shell starts")
}

/// Makes sigprop parse the command lines of a script without running them: it parses before it reads settings, which
/// are unreadable here.
fn read(folder: &TempDir, script: &str) -> Output {
    const ONLY_READ: &str = r#"
        sigprop() {
            answer=$(cd unreadable && command sigprop "$@" 2>&1)
            case "$answer" in *sigprop.toml*) ;; *) echo "sigprop $*"; echo "$answer"; exit 1 ;; esac
        }
        cargo() { :; }
    "#;
    fs::create_dir_all(folder.path().join("unreadable")).expect("a folder");
    fs::write(folder.path().join("unreadable/sigprop.toml"), "=").expect("writable");
    run(folder, &format!("{ONLY_READ}\n{script}"))
}

/// The tests above detect errors.
#[test]
fn pages_that_lie_are_found() {
    let page = |text: &str| Page { path: "lies.md".into(), text: text.to_owned() };
    let wrong = |text: &str| follow(&page(text)).wrong.len();
    assert_eq!(wrong("```sh\nsigprop --version\n```\n```text\nsigprop …\n```\n"), 0);
    assert_eq!(wrong("```sh\nsigprop --version\n```\n```text\nsigprop 99\n```\n"), 1);
    assert_eq!(wrong("```sh\nsigprop explain xaiver\n```\n"), 1);
    assert_eq!(wrong("```sh (exit=2)\nsigprop explain xaiver\n```\n"), 0);
    assert_eq!(wrong("```sh (exit=1)\nsigprop --version\n```\n"), 1);
    assert_eq!(wrong("```toml (file=mine.toml)\nn_layers = 1\n```\n```sh\nsigprop predict mine.toml\n```\n"), 0);
    assert_eq!(wrong("```sh\nsigprop predict mine.toml\n```\n"), 1);
    let not_run = |line: &str| wrong(&format!("```sh (not run)\n{line}\n```\n"));
    let loops = "for norm in pre post; do\n  sigprop validate --norm-placement $norm --layers 4000 -o nowhere\ndone";
    assert_eq!(["sigprop validate --suite components", "cargo bench", loops].map(not_run), [0; 3]);
    assert_eq!(not_run("sigprop validate --replicate 2"), 1);
    assert_eq!(not_run("for n in 1 two; do sigprop predict --layers $n; done"), 1);
    // These flags exclude each other.
    assert_eq!(not_run("sigprop validate --suite components --plot suite.svg\nsigprop --version"), 1);
    let renewed =
        follow(&page("```sh\nsigprop explain lecun\n```\n```text\nRule\n…\n  weights N(0, 2)\n…\n```\n")).renewed;
    assert!(renewed.ends_with("```text\n…\n\nRule\n  weights N(0, 1/fan_in)\n…\n```\n"), "{renewed}");
}
