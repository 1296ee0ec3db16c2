//! Tests that every parameter of every family has a name, and that packed parameters have the layout of the library.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sigprop_stack::{Parameter, Values, parameters};

use super::Held;
use crate::architecture::{Architecture, NormPlacement};
use crate::assemble::{Input, Run, assemble};
use crate::huggingface::{Options, families::FAMILIES, import};
use crate::schemes::Scheme;

/// Returns the parameters of a network under a scheme.
fn parameters_of(architecture: &Architecture, scheme: &str) -> Vec<Parameter> {
    let scheme = Scheme::parse(scheme).expect("a scheme");
    let stack = assemble(architecture, &scheme, &Input::default(), &Run::default()).expect("a network").stack;
    parameters(&stack).expect("it can be walked")
}

/// Returns the parameters of a config's network, and the tensors that hold them.
fn held(config: &serde_json::Value) -> (Vec<Parameter>, Vec<Held>) {
    let imported = import(&config.to_string(), &Options::default()).expect("a config");
    let parameters = parameters_of(&imported.architecture, "hf");
    let held = imported.names.held(&parameters);
    (parameters, held)
}

#[test]
fn every_tensor_of_every_family_is_held_and_every_name_is_one() {
    for model_type in FAMILIES.iter().flat_map(|family| family.model_types) {
        let mut config = json!({ "model_type": model_type });
        if *model_type == "granitemoehybrid" {
            config["layer_types"] = json!(["attention", "attention"]);
        }
        if *model_type == "gemma4_text" {
            config["hidden_size_per_layer_input"] = 0.into();
        }
        for key in ["num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"] {
            config[key] = 2.into();
        }
        let (parameters, held) = held(&config);
        let parts = || held.iter().flat_map(|held| &held.parts);
        let known: BTreeSet<&str> = parts().flat_map(|part| &part.parameters).map(String::as_str).collect();
        // The library leaves out some biases, which start at zero. Norms may have no parameters.
        let is_left_out = |name: &str| match *model_type {
            "whisper" | "beit" | "dinov3_vit" => name.ends_with("key.bias"),
            "gte" => name.ends_with("gated.gate.bias") || name.ends_with("gated.up.bias"),
            _ => false,
        };
        let unheld = parameters.iter().filter(|parameter| !known.contains(parameter.name.as_str()));
        let unheld: Vec<&str> = unheld
            .filter(|parameter| matches!(parameter.values, Values::Drawn(_)))
            .map(|parameter| parameter.name.as_str())
            .filter(|name| !is_left_out(name))
            .collect();
        assert_eq!(unheld, [""; 0], "{model_type}");
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for held in &held {
            *names.entry(&held.name).or_default() += 1;
        }
        names.retain(|_, count| *count > 1);
        assert_eq!(names, BTreeMap::new(), "{model_type}");
        for held in &held {
            let along: usize = held.parts.iter().map(|part| part.shape[0]).sum();
            assert!(held.parts.len() == 1 || held.shape[held.axis] == along, "{model_type}: {held:?}");
        }
    }
}

/// Names, shapes and layouts as read from the modules of transformers 5.23.0.
#[test]
fn packed_parameters_lie_as_the_library_packs_them() {
    let find = |config: &serde_json::Value, name: &str| {
        let (_, held) = held(config);
        let found = held.into_iter().find(|held| held.name == name).unwrap_or_else(|| panic!("no {name}"));
        let last = |part: &super::Part| part.parameters[0].split_once("heads.").map_or("", |(_, rest)| rest).to_owned();
        (found.shape, found.axis, found.groups, found.parts.iter().map(last).collect::<Vec<_>>())
    };
    let qkv = || ["query.weight", "key.weight", "value.weight"].map(str::to_owned).to_vec();
    let gpt2 = json!({"model_type": "gpt2", "n_layer": 1});
    assert_eq!(find(&gpt2, "h.0.attn.c_attn.weight"), (vec![768, 2304], 1, 1, qkv()));
    let codegen = json!({"model_type": "codegen", "n_layer": 1});
    let shards = ["query.weight", "value.weight", "key.weight"].map(str::to_owned).to_vec();
    assert_eq!(find(&codegen, "h.0.attn.qkv_proj.weight"), (vec![12288, 4096], 0, 4, shards));
    let bloom = json!({"model_type": "bloom", "n_layer": 1});
    assert_eq!(find(&bloom, "h.0.self_attention.query_key_value.weight"), (vec![192, 64], 0, 8, qkv()));
    let falcon = json!({"model_type": "falcon", "num_hidden_layers": 1});
    let packed = find(&falcon, "h.0.self_attention.query_key_value.weight");
    assert_eq!(packed, (vec![4544 + 2 * 64, 4544], 0, 1, qkv()));
    let groups = json!({"model_type": "falcon", "num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 8,
                        "num_kv_heads": 2, "new_decoder_architecture": true});
    let packed = find(&groups, "h.0.self_attention.query_key_value.weight");
    assert_eq!(packed, (vec![256 + 2 * 2 * 32, 256], 0, 2, qkv()));
    let mixtral = json!({"model_type": "mixtral", "num_hidden_layers": 1});
    assert_eq!(find(&mixtral, "layers.0.mlp.experts.gate_up_proj").0, [8, 2 * 14336, 4096]);
    assert_eq!(find(&mixtral, "layers.0.block_sparse_moe.experts.7.w2.weight").0, [4096, 14336]);
    assert_eq!(find(&json!({"model_type": "opt"}), "decoder.embed_positions.weight").0, [2050, 768]);
    let vit = json!({"model_type": "vit"});
    assert_eq!(find(&vit, "embeddings.patch_embeddings.projection.weight").0, [768, 3, 16, 16]);
    assert_eq!(find(&vit, "embeddings.position_embeddings").0, [1, 197, 768]);
    assert_eq!(find(&vit, "embeddings.cls_token").0, [1, 1, 768]);
    assert_eq!(find(&json!({"model_type": "whisper"}), "encoder.conv2.weight").0, [384, 384, 3]);
}

/// Returns names and shapes under a convention, without parameters for which it has no names.
fn convention(architecture: &Architecture, name: &str) -> Vec<(String, Vec<usize>)> {
    let parameters = parameters_of(architecture, "xavier");
    let known = super::Names::own(architecture).candidates(architecture);
    let names = known.into_iter().find(|names| names.convention() == Some(name)).expect("a convention");
    let held = names.held(&parameters).into_iter();
    let held = held.filter(|held| !held.parts.iter().any(|part| part.parameters[0] == held.name));
    held.map(|held| (held.name, held.shape)).collect()
}

/// The state of `torch.nn.Transformer(64, 4, 1, 1, 96)` as torch 2.15.0 lists it.
#[test]
fn a_transformer_of_torch_has_these_names_and_shapes() {
    const ENCODER: [(&str, &[usize]); 14] = [
        ("layers.0.self_attn.in_proj_weight", &[192, 64]),
        ("layers.0.self_attn.in_proj_bias", &[192]),
        ("layers.0.self_attn.out_proj.weight", &[64, 64]),
        ("layers.0.self_attn.out_proj.bias", &[64]),
        ("layers.0.linear1.weight", &[96, 64]),
        ("layers.0.linear1.bias", &[96]),
        ("layers.0.linear2.weight", &[64, 96]),
        ("layers.0.linear2.bias", &[64]),
        ("layers.0.norm1.weight", &[64]),
        ("layers.0.norm1.bias", &[64]),
        ("layers.0.norm2.weight", &[64]),
        ("layers.0.norm2.bias", &[64]),
        ("norm.weight", &[64]),
        ("norm.bias", &[64]),
    ];
    const CROSS: [(&str, &[usize]); 6] = [
        ("layers.0.multihead_attn.in_proj_weight", &[192, 64]),
        ("layers.0.multihead_attn.in_proj_bias", &[192]),
        ("layers.0.multihead_attn.out_proj.weight", &[64, 64]),
        ("layers.0.multihead_attn.out_proj.bias", &[64]),
        ("layers.0.norm3.weight", &[64]),
        ("layers.0.norm3.bias", &[64]),
    ];
    let listed = |prefix: &str, parameters: &[(&str, &[usize])]| -> BTreeSet<(String, Vec<usize>)> {
        parameters.iter().map(|(name, shape)| (format!("{prefix}{name}"), shape.to_vec())).collect()
    };
    for norm_placement in [NormPlacement::Pre, NormPlacement::Post] {
        let side = Architecture {
            n_layers: 1,
            d_model: 64,
            n_heads: Some(4),
            d_ff: Some(96),
            final_norm: Some(true),
            norm_placement,
            ..Architecture::default()
        };
        let both =
            Architecture { decoder: Some(Box::new(Architecture { causal: true, ..side.clone() })), ..side.clone() };
        let named = |architecture, name| convention(architecture, name).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(named(&side, "torch.nn.TransformerEncoder"), listed("", &ENCODER));
        let decoder: Vec<_> = ENCODER.iter().chain(&CROSS).copied().collect();
        assert_eq!(named(&both, "torch.nn.TransformerDecoder"), listed("", &decoder));
        let all = &listed("encoder.", &ENCODER) | &listed("decoder.", &decoder);
        assert_eq!(named(&both, "torch.nn.Transformer"), all);
    }
}

/// LayerScale and SwiGLU: half of int(2/3 · 4 · 128) + 7 over 8 times 8 rows are the gate.
#[test]
fn dinov2_has_the_names_of_both_releases() {
    let config = json!({"model_type": "dinov2", "num_hidden_layers": 1, "hidden_size": 128, "use_swiglu_ffn": true,
                        "num_attention_heads": 4, "layerscale_value": 0.5});
    let (_, held) = held(&config);
    for (name, shape) in [
        ("embeddings.position_embeddings", &[1, 257, 128][..]),
        ("encoder.layer.0.attention.attention.query.weight", &[128, 128]),
        ("encoder.layer.0.attention.q_proj.weight", &[128, 128]),
        ("encoder.layer.0.layer_scale1.lambda1", &[128]),
        ("encoder.layer.0.layer_scale2.lambda1", &[128]),
        ("encoder.layer.0.mlp.weights_in.weight", &[2 * 344, 128]),
        ("encoder.layer.0.mlp.gate_proj.weight", &[344, 128]),
        ("encoder.layer.0.mlp.weights_out.weight", &[128, 344]),
        ("encoder.layer.0.mlp.down_proj.bias", &[128]),
    ] {
        let found = held.iter().find(|held| held.name == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(found.shape, shape, "{name}");
        if name.contains("lambda1") {
            assert_eq!(found.parts[0].start, super::Start::Constant(0.5));
        }
    }
}
