//! Ids, texts and measurements that the user provides.

use std::fs;

use super::{folder, json, path, refused, run, small, stderr, stdout, text, written};

/// Two sequences of 16 ids as a NumPy array.
fn array(ids: &[i32; 32]) -> Vec<u8> {
    let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 16), }";
    let header = format!("{header:<117}\n");
    let data = ids.iter().flat_map(|id| id.to_le_bytes());
    [b"\x93NUMPY\x01\x00v\x00", header.as_bytes()].concat().into_iter().chain(data).collect()
}

/// The row of a site.
fn row<'o>(output: &'o str, site: &str) -> Vec<&'o str> {
    let row = output.lines().find(|line| line.split(',').nth(1) == Some(site));
    row.unwrap_or_else(|| panic!("no site {site} in {output}")).split(',').collect()
}

#[test]
fn given_ids_are_the_same_in_every_format() {
    let folder = folder();
    let ids: [i32; 32] = std::array::from_fn(|index| (7 * index % 11) as i32);
    let lines: Vec<String> =
        ids.chunks(16).map(|ids| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")).collect();
    let npy = written(&folder, "ids.npy", &array(&ids));
    let csv = written(&folder, "ids.csv", lines.join("\n").as_bytes());
    let list = written(&folder, "ids.json", format!("[[{}],[{}]]", lines[0], lines[1]).as_bytes());
    let predict = |file: &str| small("predict", &["--tokens", file, "--causal", "--format", "csv"]);
    let from_array = predict(&npy);
    assert_eq!(stdout(&from_array), stdout(&predict(&csv)));
    assert_eq!(stdout(&from_array), stdout(&predict(&list)));
    let block = row(stdout(&from_array), "blocks.1");
    assert_ne!(block[9], block[10], "the first token of a causal network differs from the last");
}

#[test]
fn a_config_is_read_as_a_family() {
    let folder = folder();
    let text = r#"{"model_type": "mine", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "rms_norm_eps": 1e-5, "vocab_size": 100, "rope_theta": Infinity}"#;
    let config = written(&folder, "config.json", text.replace("Infinity", "1e6").as_bytes());
    let message = refused(&run(&["predict", &config])).to_owned();
    assert!(message.contains("its keys are those of llama") && message.contains("--as llama"), "{message}");
    let output = run(&["predict", &config, "--as", "llama", "--seq-len", "8"]);
    assert!(stdout(&output).starts_with("mine: 2 blocks"), "{}", stderr(&output));
    let message = run(&["predict", &config, "--as", "lama"]);
    assert!(refused(&message).contains("did you mean llama?"), "{}", stderr(&message));
    let model = written(&folder, "model.toml", b"n_layers = 2");
    let message = run(&["predict", &model, "--as", "llama"]);
    assert!(refused(&message).contains("--as llama: expected a Hugging Face config"), "{}", stderr(&message));
    let infinite = written(&folder, "infinite.json", text.replace("mine", "llama").as_bytes());
    let output = run(&["predict", &infinite, "--seq-len", "8"]);
    assert!(stdout(&output).starts_with("llama: 2 blocks"), "{}", stderr(&output));
    let adapter = written(&folder, "adapter_config.json", br#"{"peft_type": "LORA"}"#);
    assert!(refused(&run(&["predict", &adapter])).contains("this is the config of an adapter"));
}

#[test]
fn a_text_is_its_bytes() {
    let folder = folder();
    let book = written(&folder, "book.txt", "To be, or not to be: that is the question.".as_bytes());
    let shape = ["predict", "--layers", "2", "--width", "64", "--seq-len", "16", "--text", &book];
    let output = run(&[shape.as_slice(), &["--vocab", "256", "--format", "csv"]].concat());
    assert!(row(stdout(&output), "blocks.0").len() == 15);
    let message = run(&[shape.as_slice(), &["--vocab", "100"]].concat());
    assert!(refused(&message).contains("below vocab_size = 100"), "{}", stderr(&message));
    let message = run(&["predict", "--text", &book, "--seq-len", "64"]);
    assert!(refused(&message).contains("at least 64 ids, one sequence, got 42"), "{}", stderr(&message));
}

/// A text of 20 different sequences: some of them represent all, and the output says so.
#[test]
fn a_long_text_is_read_in_part() {
    let folder = folder();
    let repeated = |index: usize| (0..16).map(move |place| b'a' + ((place % (index + 1)) as u8));
    let book = written(&folder, "book.txt", &(0..20).flat_map(repeated).collect::<Vec<u8>>());
    let predict = |flags: &[&str]| {
        let shape = ["predict", "--layers", "2", "--width", "64", "--seq-len", "16", "--vocab", "256", "--text", &book];
        run(&[&shape, flags].concat())
    };
    let document = |flags: &[&str]| json(&predict(&[flags, &["--json"]].concat()));
    let read = |document: &serde_json::Value| document["sequences"]["count"].as_u64();
    let (usual, all) = (document(&[]), document(&["--sequences", "all"]));
    assert_eq!([read(&usual), read(&all), read(&document(&["--sequences", "3"]))], [Some(16), Some(20), Some(3)]);
    assert_eq!(usual["caveats"][0]["kind"], "sampled_text");
    assert!(all["caveats"].as_array().is_some_and(Vec::is_empty), "{all}");
    // Repeated ids are correlated from the start, so the gradients of such sequences differ from those of others.
    let deviation = usual["sequences"]["deviation"].as_f64().expect("a number");
    assert!((0.01..10.0).contains(&deviation), "{deviation}");
    let output = predict(&[]);
    let table = stdout(&output);
    assert!(table.contains("16 of the 20 sequences") && table.contains("--sequences all"), "{table}");
    assert!(stderr(&output).contains("averages over 16 sequences"), "{}", stderr(&output));
    let one = predict(&["--sequences", "1"]);
    assert!(!stderr(&one).contains("averages over"), "{}", stderr(&one));
    assert!(refused(&predict(&["--sequences", "0"])).contains("a whole number from 1, or `all`"));
    assert!(refused(&small("predict", &["--sequences", "3"])).contains("--text"));
}

#[test]
fn files_without_ids_are_refused_with_the_place() {
    let folder = folder();
    let mut cut = array(&[1; 32]);
    cut.truncate(200);
    for (name, contents, hint) in [
        ("cut.npy", cut.as_slice(), "expected 128 bytes"),
        ("words.csv", b"to,be\n", "line 1, field 1: expected an id"),
        ("ragged.json", b"[[1, 2], [3]]", "sequence 2: expected 2 ids"),
        ("ids.txt", b"1 2", "*.npy, *.csv or *.json"),
    ] {
        let file = written(&folder, name, contents);
        let output = small("predict", &["--tokens", &file]);
        assert!(refused(&output).contains(hint), "{}", stderr(&output));
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
    let missing = path(&folder, "missing.csv");
    assert!(refused(&small("predict", &["--tokens", &missing])).contains("cannot be read"));
    let output = small("predict", &["--decoder-tokens", &missing]);
    assert!(refused(&output).contains("a model with a decoder"), "{}", stderr(&output));
    assert!(refused(&small("predict", &["--decoder-seq-len", "8"])).contains("a model with a decoder"));
}

#[test]
fn observations_are_compared_without_sampling() {
    let folder = folder();
    let predicted = small("predict", &["--format", "csv"]);
    let mut observed = "layer,site,quantity,observed,std_error,replicates\n".to_owned();
    for site in ["embeddings", "blocks.0", "blocks.1"] {
        let row = row(stdout(&predicted), site);
        for (quantity, value, std_error) in [("variance", row[3], "0.5,7"), ("grad_variance", row[5], ",")] {
            observed += &[row[0], site, quantity, value, std_error].join(",");
            observed.push('\n');
        }
    }
    let file = written(&folder, "mine.csv", observed.as_bytes());
    let exact =
        small("validate", &["--observed", &file, "--min-r2", "0.9999", "--max-error", "1e-9", "--format", "csv"]);
    assert_eq!(stdout(&exact).lines().count(), 7);
    assert!(stdout(&exact).contains(",0.5,7,"), "{}", stdout(&exact));
    let document = json(&small("validate", &["--observed", &file, "--format", "json"]));
    assert!(document["observed"].as_str().is_some_and(|name| name.ends_with("mine.csv")), "{document}");

    let off = written(&folder, "off.csv", b"site,quantity,observed,std_error\nblocks.0,variance,1e-3,\n");
    let output = small("validate", &["--observed", &off, "--max-error", "0.1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));

    let misspelt = fs::read_to_string(&file).expect("readable").replace("blocks.1,", "block.1,");
    let misspelt = written(&folder, "misspelt.csv", misspelt.as_bytes());
    let output = small("validate", &["--observed", &misspelt]);
    assert!(refused(&output).contains("misspelt.csv"), "{}", stderr(&output));
    assert!(stderr(&output).contains("did you mean blocks.1?"), "{}", stderr(&output));
    refused(&small("validate", &["--observed", &file, "--replicates", "4"]));
}
