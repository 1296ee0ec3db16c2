use proptest::prelude::*;

use super::*;
use crate::architecture::Activation;

fn imported(text: &str) -> Imported {
    import(text, &Options::default()).unwrap()
}

#[test]
fn every_family_has_a_network_by_default() {
    for family in families::FAMILIES {
        for model_type in family.model_types {
            let got = imported(&format!(r#"{{"model_type": "{model_type}"}}"#));
            let resolved = got.architecture.resolved();
            assert!(resolved.is_ok(), "{model_type}: {:?}", resolved.err());
            assert_eq!(got.warnings.iter().filter(|warning| warning.contains("not understood")).count(), 0);
            assert!(got.architecture.init.is_some() && !got.fields.is_empty());
        }
    }
}

#[test]
fn fields_say_where_they_come_from() {
    let got = imported(r#"{"model_type": "llama", "num_hidden_layers": 3}"#);
    let field = |name: &str| got.fields.iter().find(|field| field.name == name).unwrap();
    assert_eq!((field("n_layers").value.as_str(), field("n_layers").origin.as_str()), ("3", "num_hidden_layers"));
    assert_eq!(field("d_model").origin, "default of llama");
}

#[test]
fn unknown_keys_that_smell_are_told() {
    let got = imported(r#"{"model_type": "llama", "secret_multiplier": 3.5, "harmless": 7, "other_scale": null}"#);
    assert_eq!(got.warnings.len(), 1, "{:?}", got.warnings);
    assert!(got.warnings[0].starts_with("secret_multiplier = 3.5"));
}

#[test]
fn errors_name_the_key_or_the_kind() {
    let message = |text: &str| import(text, &Options::default()).unwrap_err().to_string();
    assert!(message("[]").starts_with("not a config"));
    assert_eq!(message("{}"), "the config has no model_type");
    assert!(message(r#"{"model_type": "lama"}"#).contains("did you mean llama?"));
    assert!(message(r#"{"model_type": "mamba2"}"#).contains("state-space"));
    assert!(message(r#"{"model_type": "llama", "hc_mult": 4}"#).contains("hyper-connections"));
    let got = message(r#"{"model_type": "gpt2", "n_layer": "twelve"}"#);
    assert_eq!(got, "n_layer must be a number between 1 and 100000, got \"twelve\"");
    let got = message(r#"{"model_type": "t5", "feed_forward_proj": "(relu"}"#);
    assert!(got.starts_with("feed_forward_proj must be an activation that is computed, got \"(relu\""), "{got}");
}

/// Scale, cap, bias and what is before the head, as read from the modules of transformers 5.24.
#[test]
fn heads_are_those_of_the_modules() {
    let last = |text: &str| {
        let architecture = imported(text).architecture;
        architecture.decoder.clone().map_or(architecture, |decoder| *decoder)
    };
    let told = |text: &str| {
        let Architecture { logit_scale, logit_softcap, head_bias, head_activation, .. } = last(text);
        (logit_scale, logit_softcap, head_bias, head_activation)
    };
    let family = |name: &str| told(&format!(r#"{{"model_type": "{name}"}}"#));
    assert_eq!(family("llama"), (1.0, None, false, None));
    assert_eq!(family("gptj"), (1.0, None, true, None));
    assert_eq!(family("cohere"), (0.0625, None, false, None));
    assert_eq!(family("gemma2"), (1.0, Some(30.0), false, None));
    assert_eq!(told(r#"{"model_type": "gemma2", "final_logit_softcapping": null}"#), (1.0, None, false, None));
    assert_eq!(family("gemma3_text"), (1.0, None, false, None));
    assert_eq!(told(r#"{"model_type": "granite", "logits_scaling": 8.0}"#), (0.125, None, false, None));
    assert_eq!(told(r#"{"model_type": "bert", "hidden_act": "relu"}"#), (1.0, None, true, Some(Activation::Relu)));
    assert_eq!(told(r#"{"model_type": "roberta", "hidden_act": "relu"}"#), (1.0, None, true, Some(Activation::Gelu)));
    assert_eq!(family("t5"), (512f64.powf(-0.5), None, false, None));
    assert_eq!(told(r#"{"model_type": "t5", "tie_word_embeddings": false}"#), (1.0, None, false, None));
    assert_eq!(family("mt5"), (1.0, None, false, None));
    let untied = imported(r#"{"model_type": "t5", "initializer_factor": 0.5, "tie_word_embeddings": false}"#);
    let head = untied.architecture.init.and_then(|init| init.head).map(|init| init.std());
    assert_eq!(head, Some(0.5));
}

#[test]
fn text_configs_are_followed() {
    let got = imported(r#"{"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}, "vision_config": {}}"#);
    assert_eq!(got.architecture.n_layers, 2);
    let clip = r#"{"model_type": "clip", "text_config": {}, "vision_config": {"patch_size": 16}}"#;
    assert!(imported(clip).architecture.causal);
    let vision = import(clip, &Options { tower: Tower::Vision, ..Options::default() }).unwrap();
    assert_eq!(vision.architecture.seq_len, 14 * 14 + 1);
}

/// GPT-2's residual projections: read from the library in its three behaviours.
#[test]
fn versions_differ_where_the_library_does() {
    let std = |version, text: &str| {
        let got = import(text, &Options { version, ..Options::default() }).unwrap();
        let table = got.architecture.init.unwrap();
        (table.query.std(), table.ffn_out.std())
    };
    let config = r#"{"model_type": "gpt2", "n_layer": 2}"#;
    assert_eq!(std(Version::V5, config), (0.02, 0.01));
    assert_eq!(std(Version::V5Early, config), (0.02, 0.02));
    assert_eq!(std(Version::V4, config), (0.02, 0.01));
    let zero = r#"{"model_type": "llama", "initializer_range": 0}"#;
    assert_eq!((std(Version::V4, zero).0, std(Version::V5, zero).0), (0.0, 0.02));
    assert_eq!(Version::parse("5.14.1"), Some(Version::V5Early));
    assert_eq!(Version::parse("six"), None);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..300).prop_map(Value::from),
        prop_oneof!["gelu", "silu", "yarn", "llama3", "sliding_attention", "[a-z]{0,6}"].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    const KEYS: &[&str] = &[
        "hidden_size",
        "num_hidden_layers",
        "n_layer",
        "n_embd",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "n_inner",
        "vocab_size",
        "rope_parameters",
        "rope_scaling",
        "rope_type",
        "factor",
        "rope_theta",
        "layer_types",
        "sliding_window",
        "text_config",
        "initializer_range",
        "initializer_factor",
        "attention_types",
        "attn_config",
        "hidden_act",
        "activation_function",
        "max_position_embeddings",
        "patch_size",
        "image_size",
        "num_local_experts",
        "num_experts_per_tok",
        "kv_lora_rank",
        "q_lora_rank",
        "partial_rotary_factor",
        "feed_forward_proj",
        "d_model",
        "d_kv",
        "query_pre_attn_scalar",
        "use_sliding_window",
        "window_size",
        "encoder_layers",
        "initializer_cutoff_factor",
        "low_freq_factor",
        "beta_fast",
        "rms_norm_eps",
    ];
    prop_oneof![4 => prop::sample::select(KEYS).prop_map(str::to_owned), 1 => "[a-z_]{1,8}"]
}

proptest! {
    #[test]
    fn no_text_panics(text in ".*") {
        let _ = import(&text, &Options::default());
    }

    #[test]
    fn no_config_panics(index in 0..families::FAMILIES.len(), map in prop::collection::btree_map(key(), value(), 0..8)) {
        let mut config: Map<String, Value> = map.into_iter().collect();
        config.insert("model_type".to_owned(), families::FAMILIES[index].model_types[0].into());
        if let Ok(imported) = import(&Value::Object(config).to_string(), &Options::default()) {
            let _ = imported.architecture.resolved();
        }
    }
}
