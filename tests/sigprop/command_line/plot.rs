//! Pictures.

use super::*;

fn curves(picture: &str) -> usize {
    let text = fs::read_to_string(picture).expect("the picture is there");
    let document = roxmltree::Document::parse(&text).expect("SVG is XML");
    document.descendants().filter(|node| node.attribute("class") == Some("curve")).count()
}

#[test]
fn a_picture_comes_beside_the_table() {
    let folder = folder();
    let picture = path(&folder, "depth.svg");
    let plain = small("predict", &[]);
    assert_eq!(stdout(&small("predict", &["--plot", &picture])), stdout(&plain));
    assert_eq!(curves(&picture), 4);
    stdout(&small("validate", &["--replicates", "2", "--plot", &picture]));
    assert!(fs::read_to_string(&picture).expect("the picture is there").contains("observed"));
    stdout(&small("compare", &["--schemes", "xavier,dslm", "--plot", &picture]));
    assert_eq!(curves(&picture), 8);
}

#[test]
fn a_name_tells_the_format() {
    let folder = folder();
    let commands: [(&str, &[&str]); 4] = [
        ("predict", &[]),
        ("validate", &["--replicates", "2"]),
        ("compare", &["--schemes", "xavier,dslm"]),
        ("phase", &["--x", "weight-gain=0.5..5:2", "--y", "branch-scale=0.1..1:2"]),
    ];
    for (subcommand, arguments) in commands {
        for (name, start) in [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")] {
            let picture = path(&folder, name);
            let drawn = || {
                stdout(&small(subcommand, &[arguments, &["--plot", &picture]].concat()));
                fs::read(&picture).expect("the picture is there")
            };
            let first = drawn();
            assert!(first.starts_with(start), "{subcommand} {name}");
            assert!(first == drawn(), "{subcommand} {name}: other bytes");
        }
    }
}

#[test]
fn other_formats_and_folders_are_refused() {
    let folder = folder();
    for name in ["depth.jpg", "depth"] {
        let picture = path(&folder, name);
        for subcommand in ["predict", "validate", "compare"] {
            let output = small(subcommand, &["--plot", &picture]);
            let message = refused(&output);
            assert!(message.contains("--plot") && message.contains("a file named *.svg, *.png or *.pdf"), "{message}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let nowhere = path(&folder, "missing/depth.svg");
    for subcommand in ["predict", "validate", "compare"] {
        let output = small(subcommand, &["--plot", &nowhere]);
        assert!(refused(&output).contains(&format!("cannot write {nowhere}")), "{}", stderr(&output));
    }
    let suite = run(&["validate", "--suite", "components", "--plot", &path(&folder, "suite.svg")]);
    assert!(refused(&suite).contains("--suite"), "{}", stderr(&suite));
}
