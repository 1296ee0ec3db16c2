//! Completions and manual pages.

use std::fs;

use super::{files, folder, path, refused, run, stderr, stdout};

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        for word in ["recommend", "norm-placement", "jsonl"] {
            // Elvish and PowerShell do not complete values.
            let has_values = !matches!(shell, "elvish" | "powershell") || word != "jsonl";
            assert_eq!(stdout(&output).contains(word), has_values, "{shell}: {word}");
        }
    }
    assert!(refused(&run(&["completions", "bahs"])).contains("bash"));
}

#[test]
fn every_command_has_a_page() {
    let folder = folder();
    let target = path(&folder, "man1");
    stdout(&run(&["man", "-o", &target]));
    let pages = files(target.as_ref());
    assert!(pages.contains(&"sigprop.1".to_owned()) && pages.contains(&"sigprop-predict.1".to_owned()), "{pages:?}");
    for page in &pages {
        let text = fs::read_to_string(format!("{target}/{page}")).expect("readable");
        assert!(text.contains(".SH SYNOPSIS") && text.contains("Examples:"), "{page}: {text}");
    }
    let predict = run(&["man", "predict"]);
    assert_eq!(stdout(&predict), fs::read_to_string(format!("{target}/sigprop-predict.1")).expect("readable"));
    let unknown = run(&["man", "predcit"]);
    assert!(refused(&unknown).contains("did you mean predict?"), "{}", stderr(&unknown));
}
