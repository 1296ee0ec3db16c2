//! Stack files: with the roles of their maps, schemes initialise them anew.

use super::*;

/// Writes the stack of the small network, and the same with the roles of its maps. Returns both files.
fn stacks(folder: &TempDir) -> [String; 2] {
    let plain = path(folder, "stack.json");
    stdout(&small("predict", &["--scheme", "uniform:0.3", "--dump-stack", &plain]));
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&plain).expect("readable")).expect("JSON");
    let kinds = [
        ("attention.heads.query", "query"),
        ("attention.heads.key", "key"),
        ("attention.heads.value", "value"),
        ("attention.output", "attention_output"),
        ("ffn.in", "ffn_in"),
        ("ffn.out", "ffn_out"),
    ];
    for (block, (path, kind)) in (0..2).flat_map(|block| kinds.map(|kind| (block, kind))) {
        document["roles"][format!("blocks.{block}.{path}.weight")] = serde_json::json!({"kind": kind, "block": block});
    }
    let with_roles = written(folder, "roles.json", document.to_string().as_bytes());
    [plain, with_roles]
}

#[test]
fn a_stack_with_roles_is_initialised_anew() {
    let folder = folder();
    let [_, roles] = stacks(&folder);
    let again = run(&["predict", "--stack", &roles, "--scheme", "gpt2", "--format", "csv"]);
    assert_eq!(stdout(&again), stdout(&small("predict", &["--scheme", "gpt2", "--format", "csv"])));
}

/// Schemes are compared, recommended and mapped on a stack as on the network that it was dumped from.
#[test]
fn schemes_are_tried_on_a_stack_with_roles() {
    let folder = folder();
    let [_, roles] = stacks(&folder);
    for (command, flags) in [
        ("compare", &["--schemes", "xavier,gpt2,deepnorm,hf", "--format", "csv"][..]),
        ("recommend", &["--max-correlation", "0.5", "--format", "csv"]),
        (
            "phase",
            &["--scheme", "gpt2", "--x", "weight-gain=1..2:2", "--y", "branch-scale=0.1..1:2", "--format", "csv"],
        ),
    ] {
        let of_stack = run(&[&[command, "--stack", &roles], flags].concat());
        assert_eq!(stdout(&of_stack), stdout(&small(command, flags)), "{command}");
    }
    let recommended = path(&folder, "recommended.json");
    let found = json(&run(&["recommend", "--stack", &roles, "--json", "--dump-stack", &recommended]));
    let scheme = found["scheme"].as_str().expect("a scheme");
    let predicted =
        |flags: &[&str]| stdout(&run(&[&["predict", "--format", "csv", "--stack"], flags].concat())).to_owned();
    assert_eq!(predicted(&[&recommended]), predicted(&[&roles, "--scheme", scheme]));
}

#[test]
fn stacks_to_which_no_scheme_applies_are_refused() {
    let folder = folder();
    let [plain, roles] = stacks(&folder);
    let axes = ["--x", "weight-gain=1..2:2", "--y", "branch-scale=0.1..1:2"];
    for command in [
        &["predict", "--scheme", "gpt2"][..],
        &["compare"],
        &["recommend"],
        &[&["phase", "--scheme", "gpt2"], axes.as_slice()].concat(),
    ] {
        let output = run(&[command, &["--stack", &plain]].concat());
        assert!(refused(&output).starts_with("error: roles: expected the role of every map"), "{}", stderr(&output));
    }
    for command in ["predict", "compare", "recommend", "phase"] {
        for other in [&["gpt2"][..], &["--layers", "3"], &["--uniform"]] {
            let axes = if command == "phase" { axes.as_slice() } else { &[] };
            let output = run(&[&[command, "--stack", &roles], other, axes].concat());
            assert!(refused(&output).contains("cannot be used with"), "{}", stderr(&output));
        }
    }
    let unnamed = run(&[["phase", "--stack", &roles].as_slice(), &axes].concat());
    assert!(refused(&unnamed).contains("expected --scheme NAME too"), "{}", stderr(&unnamed));
    let axes = ["--x", "layers=1..4", "--y", "branch-scale=0.1..1:2", "--scheme", "gpt2"];
    let layers = run(&[["phase", "--stack", &roles].as_slice(), &axes].concat());
    assert!(refused(&layers).contains("layers cannot be varied in a stack"), "{}", stderr(&layers));
}

/// A folder of results is continued only with the same stack.
#[test]
fn parts_of_another_stack_are_refused() {
    let folder = folder();
    let [_, roles] = stacks(&folder);
    let target = path(&folder, "parts");
    let flags = ["--schemes", "gpt2,xavier", "--resume", &target];
    let part = run(&[["compare", "--stack", &roles, "--shard", "1/2"].as_slice(), &flags].concat());
    assert!(part.status.success(), "{}", stderr(&part));
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&roles).expect("readable")).expect("JSON");
    document["gradient"]["correlation"] = 0.5.into();
    let changed = written(&folder, "changed.json", document.to_string().as_bytes());
    let other = run(&[["compare", "--stack", &changed].as_slice(), &flags].concat());
    assert!(refused(&other).contains("another stack has left this"), "{}", stderr(&other));
    let same = run(&[["compare", "--stack", &roles].as_slice(), &flags].concat());
    assert!(stdout(&same).contains("xavier"), "{}", stdout(&same));
}
