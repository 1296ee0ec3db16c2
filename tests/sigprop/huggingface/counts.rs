//! Numbers of parameters, compared with those of the classes of transformers.
//!
//! `counts.jsonl` has one config per line, with numbers of parameters by class (each tensor counts once). They are
//! those of the models that transformers 5.24.0 with torch 2.15.0 builds from the config on the device `meta`. The
//! class without a name is `AutoModel`. Classes of one half of an encoder–decoder are left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sigprop::{
    assemble::{Input, Run, assemble},
    cost::Cost,
    huggingface::{Imported, Options, import},
    schemes::Scheme,
};

#[derive(Deserialize)]
struct Line {
    config: Map<String, Value>,
    classes: BTreeMap<String, u64>,
}

#[test]
fn parameters_are_those_of_every_class() {
    let scheme = Scheme::parse("hf").unwrap();
    let mut wrong = Vec::new();
    for line in include_str!("counts.jsonl").lines() {
        let Line { mut config, classes } = serde_json::from_str(line).unwrap();
        for (class, expected) in classes {
            if !class.is_empty() {
                config.insert("architectures".to_owned(), json!([class]));
            }
            let text = Value::Object(config.clone()).to_string();
            let Imported { architecture, names, .. } = import(&text, &Options::default()).unwrap();
            let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).unwrap().stack;
            let got = Cost::of(&stack, Some(&architecture)).unwrap().with_names(&stack, &names).unwrap().parameters;
            if got != expected {
                wrong.push(format!("{text}: {got} parameters, measured {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
