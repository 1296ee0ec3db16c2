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
fn other_formats_and_folders_are_refused() {
    let folder = folder();
    for name in ["depth.png", "depth.pdf", "depth"] {
        let picture = path(&folder, name);
        for subcommand in ["predict", "validate", "compare"] {
            let output = small(subcommand, &["--plot", &picture]);
            let message = refused(&output);
            assert!(message.contains("--plot") && message.contains("expected a file named *.svg"), "{message}");
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
