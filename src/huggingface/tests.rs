use proptest::prelude::*;

use super::*;
use crate::architecture::{Activation, Disentangled, GlobalHeads, Head, Positions};

fn imported(text: &str) -> Imported {
    import(text, &Options::default()).unwrap()
}

#[test]
fn every_family_has_a_network_by_default() {
    for family in families::FAMILIES {
        // Gemma 4 has embeddings per layer, unless its config says otherwise.
        for model_type in family.model_types.iter().filter(|name| **name != "gemma4_text") {
            let got = imported(&format!(r#"{{"model_type": "{model_type}"}}"#));
            let resolved = got.architecture.resolved();
            assert!(resolved.is_ok(), "{model_type}: {:?}", resolved.err());
            assert_eq!(got.warnings.iter().filter(|warning| warning.contains("not understood")).count(), 0);
            assert!(got.architecture.hf_init.is_some() && !got.fields.is_empty());
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
    assert!(message("{}").starts_with("the config has no model_type; no known family reads all its keys: describe"));
    assert!(message(r#"{"model_type": "recurrent_gemma"}"#).contains("RG-LRU"));
    assert!(message(r#"{"model_type": "step3p7"}"#).contains("one score per head"));
    assert!(message(r#"{"model_type": "gemma4_text"}"#).contains("hidden_size_per_layer_input"));
    assert!(message(r#"{"model_type": "llama", "hc_mult": 4}"#).contains("hyper-connections"));
    let got = message(r#"{"model_type": "gpt2", "n_layer": "twelve"}"#);
    assert_eq!(got, "n_layer must be a number between 1 and 100000, got \"twelve\"");
    let got = message(r#"{"model_type": "t5", "feed_forward_proj": "(relu"}"#);
    assert!(got.starts_with("feed_forward_proj must be an activation that is computed, got \"(relu\""), "{got}");
}

/// Shortened configs of models that are not known. The similar family is found by their keys alone.
#[test]
fn unknown_models_are_told_which_family_has_their_keys() {
    let nearest = |text: &str| match import(text, &Options::default()).unwrap_err() {
        ImportError::UnknownModelType { similar, .. } | ImportError::NoModelType { similar } => {
            similar.first().copied()
        }
        other => panic!("{other}"),
    };
    let llama = r#"{"model_type": "bertish", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false}"#;
    assert_eq!(nearest(llama), Some("llama"));
    let latent = r#"{"model_type": "x", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1}"#;
    assert!(nearest(latent).unwrap().starts_with("deepseek"));
    let bert = r#"{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "type_vocab_size": 2, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12}"#;
    assert_eq!(nearest(bert), Some("bert"));
    assert_eq!(nearest(r#"{"model_type": "x", "depth": 3}"#), None);
}

/// Families that the library does not have under these names, text parts, and hybrids without state-space layers.
#[test]
fn other_names_of_known_structures_are_read() {
    let shape = r#""hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512"#;
    let read = |model_type: &str, rest: &str| {
        imported(&format!(r#"{{"model_type": "{model_type}", {shape}{rest}}}"#)).architecture
    };
    let same =
        |one: Architecture, other: Architecture| assert_eq!(Architecture { name: other.name.clone(), ..one }, other);
    same(read("kimi_k2", ""), read("deepseek_v3", ""));
    same(read("mimo", r#", "num_nextn_predict_layers": 1"#), read("qwen2", ""));
    let text =
        imported(&format!(r#"{{"model_type": "kimi_k25", "text_config": {{"model_type": "kimi_k2", {shape}}}}}"#));
    same(text.architecture, read("deepseek_v3", ""));
    same(read("qwen2_vl", r#", "num_key_value_heads": 2"#), read("qwen2_vl_text", r#", "num_key_value_heads": 2"#));
    assert_eq!(read("baichuan", r#", "max_position_embeddings": 4096"#).positions, Positions::Rotary);
    assert_eq!(read("baichuan", r#", "model_max_length": 4096"#).positions, Positions::Alibi);
    let dense = read("granitemoehybrid", r#", "layer_types": ["attention", "attention"], "num_local_experts": 0"#);
    assert_eq!((dense.d_ff, dense.experts, dense.positions), (Some(1024), None, Positions::None));
    let list = read("hunyuan_v1_moe", r#", "num_experts": 8, "moe_topk": [2, 2]"#);
    assert_eq!(list.experts.unwrap().top_k, 2);
}

/// Gemma 4's blocks without a window have other heads. The library writes their sizes per block.
#[test]
fn gemma_4_has_wider_heads_without_a_window() {
    const KEYS: &str = r#""model_type": "gemma4_text", "num_hidden_layers": 6, "hidden_size_per_layer_input": 0,
        "attention_k_eq_v": true"#;
    let global = |rest: &str| {
        let got = imported(&format!("{{{KEYS}, {rest}}}"));
        assert_eq!(got.warnings, Vec::<String>::new());
        assert_eq!(got.architecture.windows, [512, 512, 512, 512, 512, 0]);
        got.architecture.global_heads.unwrap()
    };
    let heads = GlobalHeads { n_kv_heads: 2, d_head: 128, shared_values: true };
    assert_eq!(global(r#""num_global_key_value_heads": 2, "global_head_dim": 128"#), heads);
    assert_eq!(global(r#""per_layer_config": {"5": {"head_dim": 128, "num_key_value_heads": 2}}"#), heads);
    let dense = global(r#""attention_k_eq_v": false, "num_global_key_value_heads": 2"#);
    assert_eq!(dense, GlobalHeads { n_kv_heads: 4, d_head: 512, shared_values: false });
    let shared = format!("{{{KEYS}, \"num_kv_shared_layers\": 2}}");
    let message = import(&shared, &Options::default()).unwrap_err().to_string();
    assert!(message.starts_with("num_kv_shared_layers must be 0"), "{message}");
}

/// Parts of Llama 4 that act in long sequences alone are left out with a warning.
#[test]
fn llama_4_warns_beyond_a_chunk() {
    let warnings = |seq_len: usize| {
        let options = Options { seq_len: Some(seq_len), ..Options::default() };
        import(r#"{"model_type": "llama4_text", "attention_chunk_size": 64, "floor_scale": 128}"#, &options)
            .unwrap()
            .warnings
    };
    assert_eq!(warnings(64), Vec::<String>::new());
    assert!(warnings(65)[0].contains("attention_chunk_size"));
    assert!(warnings(128)[1].contains("attn_temperature_tuning"));
    let listed =
        imported(r#"{"model_type": "llama4_text", "num_hidden_layers": 4, "moe_layers": [1, 3]}"#).architecture;
    assert_eq!((listed.dense_blocks, listed.rotated), (vec![0, 2], vec![true, true, true, false]));
}

/// The head of a text part is tied if the whole config says so.
#[test]
fn text_parts_are_tied_as_the_whole_says() {
    let tied = |whole: &str| {
        imported(&format!(r#"{{"model_type": "qwen2_vl", {whole}"text_config": {{}}}}"#)).architecture.head
    };
    assert_eq!(tied(""), Head::Untied);
    assert_eq!(tied(r#""tie_word_embeddings": true, "#), Head::Tied);
}

#[test]
fn a_family_may_be_given() {
    let text = r#"{"model_type": "mine", "num_hidden_layers": 3, "rms_norm_eps": 1e-5}"#;
    let as_llama = Options { family: Some(family("llama").unwrap()), ..Options::default() };
    let got = import(text, &as_llama).unwrap();
    let plain = imported(&text.replace("mine", "llama"));
    assert_eq!(got.architecture.name.as_deref(), Some("mine"));
    assert_eq!(Architecture { name: plain.architecture.name.clone(), ..got.architecture }, plain.architecture);
    assert_eq!(got.names, plain.names);
    let inside = import(r#"{"model_type": "mine_vl", "text_config": {"num_hidden_layers": 3}}"#, &as_llama).unwrap();
    assert_eq!(inside.architecture.n_layers, 3);
    assert!(family("lama").unwrap_err().to_string().contains("did you mean llama?"));
}

#[test]
fn other_files_of_the_library_are_recognised() {
    for (text, kind) in [
        (r#"{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0"}"#, "a diffusers file"),
        (r#"{"peft_type": "LORA", "base_model_name_or_path": "a/b", "r": 8}"#, "the config of an adapter"),
        (r#"{"bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.31"}"#, "a generation config"),
        (r#"{"image_processor_type": "ViTImageProcessor", "size": 224}"#, "the config of a preprocessor"),
        (r#"{"processor_class": "LlavaProcessor", "patch_size": 14}"#, "the config of a processor"),
        (r#"{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"}"#, "a file of a tokenizer"),
        (r#"{"metadata": {}, "weight_map": {}}"#, "the index of a checkpoint"),
    ] {
        let message = is_config(text).unwrap_err().to_string();
        assert!(message.starts_with(&format!("this is {kind}")), "{text}: {message}");
    }
    let adapter = is_config(r#"{"peft_type": "LORA", "base_model_name_or_path": "a/b"}"#).unwrap_err().to_string();
    assert!(adapter.ends_with("pass the config.json of the model that it adapts, a/b"), "{adapter}");
    assert!(is_config(r#"{"model_type": "gpt2", "eos_token_id": 2, "tokenizer_class": "x"}"#).unwrap());
    assert!(!is_config(r#"{"n_layers": 2, "d_model": 64}"#).unwrap());
}

#[test]
fn numbers_of_python_are_read() {
    let got =
        imported(r#"{"model_type": "llama", "num_hidden_layers": 3, "time_step_limit": [0.0, Infinity], "x": NaN}"#);
    assert_eq!((got.architecture.n_layers, got.warnings.len()), (3, 0));
}

/// Keys that published configs hold and their classes do not read.
#[test]
fn keys_that_change_no_signal_are_not_told() {
    for text in [
        r#"{"model_type": "modernbert", "layer_norm_eps": 1e-5, "norm_bias": false}"#,
        r#"{"model_type": "minimax_m2", "use_qk_norm": true, "qk_norm_type": "per_layer", "rotary_dim": 64}"#,
        r#"{"model_type": "hunyuan_v1_moe", "use_qk_norm": true, "num_shared_expert": [1, 1], "moe_intermediate_size": [8, 8]}"#,
        r#"{"model_type": "exaone4", "sliding_window": null, "sliding_window_pattern": "LLLG"}"#,
        r#"{"model_type": "gptj", "scale_attn_weights": true, "rotary": true}"#,
        r#"{"model_type": "mpt", "norm_type": "low_precision_layernorm", "logit_scale": null}"#,
        r#"{"model_type": "smollm3", "max_window_layers": 28, "use_sliding_window": false}"#,
        r#"{"model_type": "starcoder2", "norm_type": "layer_norm", "scale_attention_softmax_in_fp32": true}"#,
        r#"{"model_type": "bloom", "masked_softmax_fusion": true, "attention_softmax_in_fp32": true}"#,
        r#"{"model_type": "mbart", "add_final_layer_norm": true, "normalize_before": true}"#,
        r#"{"model_type": "gemma2", "sliding_window_size": 4096}"#,
        r#"{"model_type": "llama", "neftune_noise_alpha": 5.0}"#,
        r#"{"model_type": "qwen3_moe", "sliding_window": 4096, "max_window_layers": 48, "router_aux_loss_coef": 0.001}"#,
    ] {
        assert_eq!(imported(text).warnings, Vec::<String>::new(), "{text}");
    }
}

/// The blocks with experts and with indexers of MiniMax-M3, whose published config has lists of its own.
#[test]
fn blocks_of_minimax_are_those_of_its_lists() {
    let text = |seq_len: usize| {
        let sparse = r#"{"sparse_attention_freq": [0, 1, 1], "sparse_topk_blocks": 2, "sparse_block_size": 64}"#;
        let text = format!(
            r#"{{"model_type": "minimax_m3_vl", "text_config": {{"model_type": "minimax_m3", "num_hidden_layers": 3,
                "hidden_act": "swigluoai", "use_gemma_norm": true, "use_qk_norm": true, "moe_layer_freq": [0, 1, 1],
                "moe_intermediate_size": 3072, "n_shared_experts": 1, "rotary_dim": 64, "partial_rotary_factor": 0.5,
                "sparse_attention_config": {sparse}}}}}"#
        );
        import(&text, &Options { seq_len: Some(seq_len), ..Options::default() }).expect("a config that is read")
    };
    let (short, long) = (text(128), text(129));
    assert_eq!((&short.architecture.dense_blocks, short.architecture.d_ff), (&vec![0], Some(12288)));
    assert_eq!(short.architecture.experts.map(|experts| (experts.d_ff, experts.shared_d_ff)), Some((3072, 3072)));
    assert_eq!((short.architecture.rotary_dim, short.warnings), (Some(64), Vec::new()));
    assert!(long.warnings[0].contains("128 tokens in 2 of 3"), "{:?}", long.warnings);
}

/// The factors on cosines and sines of Phi-3.5-MoE replace those of LongRoPE.
#[test]
fn factors_of_phimoe_are_those_of_its_config() {
    let rope = r#"{"type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1, 1], "long_factor": [2, 2],
        "short_mscale": 1.25, "long_mscale": 1.5}"#;
    let text =
        format!(r#"{{"model_type": "phimoe", "hidden_size": 8, "num_attention_heads": 2, "rope_scaling": {rope}}}"#);
    let scale = |seq_len| {
        let got =
            import(&text, &Options { seq_len: Some(seq_len), ..Options::default() }).expect("a config that is read");
        assert_eq!(got.warnings, Vec::<String>::new());
        got.architecture.rotary_scale
    };
    approx::assert_relative_eq!(scale(64), 1.25);
    approx::assert_relative_eq!(scale(65), 1.5);
    let error = import(r#"{"model_type": "phimoe", "router_jitter_noise": 0.1}"#, &Options::default()).unwrap_err();
    assert!(error.to_string().starts_with("router_jitter_noise must be 0.01"), "{error}");
}

/// Angles and the factor on cosines and sines as `ROPE_INIT_FUNCTIONS` of transformers 5.24.0 computes them, for heads
/// of width 16.
#[test]
fn frequencies_are_those_of_the_library() {
    const BASE: &str = r#""model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "max_position_embeddings": 64"#;
    let yarn = [1.0, 0.079_057, 0.025, 0.007_906, 0.0025, 0.000_791, 0.000_25, 0.000_079];
    let later = [1.0, 0.237_171, 0.05, 0.007_906, 0.0025, 0.000_791, 0.000_25, 0.000_079];
    let llama3 = [1.0, 0.244_385, 0.013_042, 0.003_953, 0.001_25, 0.000_395, 0.000_125, 0.000_04];
    let linear = [0.5, 0.158_114, 0.05, 0.015_811, 0.005, 0.001_581, 0.0005, 0.000_158];
    for (scaling, frequencies, scale) in [
        (r#"{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}"#, &yarn[..], 1.138_629_436),
        (r#"{"type": "yarn", "factor": 4.0}"#, &later, 1.138_629_436),
        (r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}"#, &llama3, 1.0),
        (r#"{"rope_type": "linear", "factor": 2.0}"#, &linear, 1.0),
        (r#"{"rope_type": "proportional", "partial_rotary_factor": 0.5}"#, &[1.0, 0.316_228, 0.1, 0.031_623], 1.0),
    ] {
        for key in ["rope_scaling", "rope_parameters"] {
            let architecture = imported(&format!(r#"{{{BASE}, "{key}": {scaling}}}"#)).architecture;
            let got = architecture.rotary_frequencies.unwrap();
            assert_eq!(got.len(), frequencies.len(), "{scaling}");
            for (got, expected) in got.iter().zip(frequencies) {
                approx::assert_abs_diff_eq!(got, expected, epsilon = 1e-6);
            }
            approx::assert_relative_eq!(architecture.rotary_scale, scale, max_relative = 1e-8);
        }
    }
    let long = format!(
        r#"{{{BASE}, "model_type": "phi3", "original_max_position_embeddings": 16, "rope_scaling":
        {{"type": "su", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [4, 4, 4, 4, 4, 4, 4, 4]}}}}"#
    );
    for (seq_len, first) in [(16, 1.0), (17, 0.25)] {
        let got = import(&long, &Options { seq_len: Some(seq_len), ..Options::default() }).unwrap().architecture;
        approx::assert_relative_eq!(got.rotary_frequencies.unwrap()[0], first);
        approx::assert_relative_eq!(got.rotary_scale, 1.224_744_871, max_relative = 1e-8);
    }
}

/// Scale, cap and bias of heads and the layers before them, as read from the modules of transformers 5.24.
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
    let head = untied.architecture.hf_init.and_then(|init| init.head).map(|init| init.std());
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
    let siglip = clip.replace("clip", "siglip");
    assert!(!imported(&siglip).architecture.causal);
    let vision = import(&siglip, &Options { tower: Tower::Vision, ..Options::default() }).unwrap();
    assert_eq!(vision.architecture.seq_len, 14 * 14);
}

/// GPT-2's residual projections, as read from the library in its three behaviours.
#[test]
fn versions_differ_where_the_library_does() {
    let std = |version, text: &str| {
        let got = import(text, &Options { version, ..Options::default() }).unwrap();
        let table = got.architecture.hf_init.unwrap();
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

/// Mistral 7B has no window since 0.2.
#[test]
fn no_window_where_the_config_says_null() {
    let windows = |text: &str| import(text, &Options::default()).expect("a model").architecture.windows;
    assert_eq!(windows(r#"{"model_type": "mistral", "num_hidden_layers": 2}"#), [4096, 4096]);
    assert!(windows(r#"{"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": null}"#).is_empty());
}

/// Returns options with the family that a message names after `--as`.
fn named_in(message: &str) -> Options {
    let (_, rest) = message.split_once("--as ").expect("a family");
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().expect("a name");
    Options { family: Some(family(name).expect("a known one")), ..Options::default() }
}

/// ALBERT has one block, and several groups of blocks are refused.
#[test]
fn blocks_of_albert_are_one() {
    let read = |keys: &str| import(&format!(r#"{{"model_type": "albert"{keys}}}"#), &Options::default());
    let albert = read("").expect("valid").architecture;
    assert_eq!((albert.shared_blocks, albert.embedding_width, albert.d_model), (true, Some(128), 4096));
    let error = read(r#", "num_hidden_groups": 2"#).expect_err("two groups").to_string();
    assert!(error.contains("num_hidden_groups") && error.contains("got 2"), "{error}");
}

/// Blocks of Nemotron-NAS have sizes of their own, rounded as in the library.
#[test]
fn blocks_of_nemotron_nas_differ() {
    let read = |second: &str| {
        let first = r#"{"attention": {"n_heads_in_group": 4, "no_op": false}, "ffn": {"ffn_mult": 2.625}}"#;
        let keys =
            r#""model_type": "nemotron-nas", "num_hidden_layers": 2, "hidden_size": 8192, "num_attention_heads": 64"#;
        import(&format!(r#"{{{keys}, "block_configs": [{first}, {second}]}}"#), &Options::default())
    };
    let got = read(r#"{"attention": {"no_op": true}, "ffn": {"ffn_mult": 0.5}}"#).expect("valid").architecture;
    assert_eq!((got.block_kv_heads, got.block_d_ff), (vec![16, 0], vec![14336, 2816]));
    let linear = r#"{"attention": {"no_op": true}, "ffn": {"replace_with_linear": true}}"#;
    let error = read(linear).expect_err("a linear map").to_string();
    assert!(error.contains("replace_with_linear") && error.contains("not computed"), "{error}");
    let error = read(r#"{"ffn": {"ffn_mult": 0.5}}"#).expect_err("no group").to_string();
    assert!(error.contains("n_heads_in_group"), "{error}");
}

/// Blocks of Mllama that read images are empty.
#[test]
fn blocks_of_mllama_that_read_images_are_empty() {
    let text = r#"{"model_type": "mllama", "text_config": {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]}}"#;
    let got = imported(text).architecture;
    assert_eq!((got.block_kv_heads, got.block_d_ff), (vec![8, 0, 8, 0], vec![14336, 0, 14336, 0]));
}

/// The halves of T5Gemma have their own sizes, and a window of the encoder is on both sides.
#[test]
fn halves_of_t5gemma_have_their_own_keys() {
    let got = imported(
        r#"{"model_type": "t5gemma", "encoder": {"num_hidden_layers": 2, "sliding_window": 8},
            "decoder": {"num_hidden_layers": 3, "sliding_window": 8, "hidden_size": 512}}"#,
    );
    let decoder = got.architecture.decoder.expect("a decoder");
    assert_eq!((got.architecture.windows, decoder.windows), (vec![16, 0], vec![8, 0, 8]));
    assert_eq!((got.architecture.d_model, decoder.d_model, got.architecture.shared_embedding), (2304, 512, false));
}

/// Every structure that is not computed has a reason and advice, also under the key of a half.
#[test]
fn structures_that_are_not_computed_are_named() {
    let expected = [
        ("deberta", "disentangled"),
        ("recurrent_gemma", "RG-LRU"),
        ("bitnet", "ternary"),
        ("longformer", "global tokens"),
        ("gemma3n_text", "per layer"),
        ("wav2vec2-conformer", "waveforms"),
        ("convnextv2", "resolutions"),
    ];
    for (model_type, reason) in expected {
        for text in [
            format!(r#"{{"model_type": "{model_type}"}}"#),
            format!(r#"{{"model_type": "both", "text_config": {{"model_type": "{model_type}"}}}}"#),
        ] {
            let message = import(&text, &Options::default()).expect_err("not computed").to_string();
            assert!(message.contains(reason) && message.contains("TOML"), "{message}");
            assert!(!message.contains("--as") || import(&text, &named_in(&message)).is_ok(), "{message}");
        }
    }
    let other = import(r#"{"model_type": "minimax_m7"}"#, &Options::default()).expect_err("unknown").to_string();
    assert!(other.contains("unknown model_type"), "{other}");
}

#[test]
fn blocks_without_experts_are_those_of_the_config() {
    let dense = |layers: &str| {
        let text = format!(r#"{{"model_type": "qwen3_moe", "mlp_only_layers": {layers}}}"#);
        import(&text, &Options::default()).map(|imported| imported.architecture.dense_blocks)
    };
    assert_eq!((dense("[0, 2]").unwrap(), dense("null").unwrap()), (vec![0, 2], Vec::new()));
    assert_eq!(dense("[-1]").unwrap_err().to_string(), "mlp_only_layers must be numbers of blocks, got [-1]");
}

/// Parts of known structures that the prediction leaves out.
#[test]
fn warnings_name_the_keys_that_are_left_out() {
    let warnings = |text: &str| imported(text).warnings;
    let groups = warnings(r#"{"model_type": "deepseek_v3"}"#);
    assert!(groups.len() == 1 && groups[0].contains("its best 4 of 8 groups (topk_group, n_group)"), "{groups:?}");
    assert!(warnings(r#"{"model_type": "kimi_k2", "n_group": 1, "topk_group": 1}"#).is_empty());
    let limited = r#""topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3"#;
    assert!(warnings(&format!(r#"{{"model_type": "deepseek_v2", {limited}}}"#))[0].contains("best 3 of 8 groups"));
    assert!(warnings(r#"{"model_type": "deepseek_v2", "n_group": 8, "topk_group": 3}"#).is_empty());
    let mpt = warnings(r#"{"model_type": "mpt", "init_config": {"name": "kaiming_normal_"}}"#);
    assert!(mpt.len() == 1 && mpt[0].starts_with("init_config (kaiming_normal_)"), "{mpt:?}");
}

/// `MptMLP` of transformers has `4 * config.hidden_size` features and never reads `expansion_ratio`.
#[test]
fn the_expansion_ratio_of_mpt_has_no_effect() {
    let read = |ratio: &str| {
        let imported = imported(&format!(r#"{{"model_type": "mpt", "d_model": 64{ratio}}}"#));
        (imported.architecture.d_ff, imported.warnings)
    };
    assert_eq!(read(""), (Some(256), Vec::new()));
    assert_eq!(read(r#", "expansion_ratio": 4"#), (Some(256), Vec::new()));
    let (d_ff, warnings) = read(r#", "expansion_ratio": 2"#);
    assert_eq!(d_ff, Some(256));
    assert!(warnings.len() == 1 && warnings[0].starts_with("expansion_ratio = 2 has no effect"), "{warnings:?}");
}

#[test]
fn values_are_listed_once() {
    for text in [
        r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 4}"#,
        r#"{"model_type": "bloom", "n_embed": 64, "n_head": 4}"#,
        r#"{"model_type": "mpt", "d_model": 64, "n_heads": 4}"#,
        r#"{"model_type": "dinov2", "hidden_size": 64}"#,
    ] {
        let got = imported(text);
        let widths: Vec<&Field> = got.fields.iter().filter(|field| field.name == "d_model").collect();
        assert!(
            widths.len() == 1 && got.architecture.d_model == widths[0].value.parse::<usize>().unwrap(),
            "{widths:?}"
        );
    }
    let rotation = imported(r#"{"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 0, 1]}"#);
    let field = rotation.fields.iter().find(|field| field.name == "blocks without rotation").unwrap();
    assert_eq!((field.value.as_str(), field.origin.as_str()), ("1", "no_rope_layers"));
}

/// DeBERTa-v3: positions have the maps of contents, and 256 rows on each side reach as far as 512 tokens.
#[test]
fn deberta_reads_its_relative_positions() {
    let config = |rest: &str| {
        format!(r#"{{"model_type": "deberta-v2", "relative_attention": true, "position_biased_input": false, {rest}}}"#)
    };
    let read = |rest: &str| imported(&config(rest)).architecture;
    let third = read(
        r#""position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true, "pos_att_type": "p2c|c2p""#,
    );
    let expected =
        Disentangled { span: 256, max_distance: Some(512), norm: true, keys: true, queries: true, shared_maps: true };
    assert_eq!((third.disentangled, third.positions), (Some(expected), Positions::None));
    approx::assert_relative_eq!(third.attention_scale.unwrap(), (3.0 * 64f64).powf(-0.5));
    let alone = read(r#""pos_att_type": ["c2p"], "max_relative_positions": 100"#).disentangled;
    let expected =
        Disentangled { span: 100, max_distance: None, norm: false, queries: false, shared_maps: false, ..expected };
    assert_eq!(alone, Some(expected));
    let error =
        import(&config(r#""conv_kernel_size": 3"#), &Options::default()).expect_err("a convolution").to_string();
    assert!(error.contains("conv_kernel_size") && error.contains("not computed"), "{error}");
}
