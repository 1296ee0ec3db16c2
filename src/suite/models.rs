//! Whole encoders: placements, norms, activations, schemes, depths, inputs, dropout, flat and sharp scores.

use sigprop_stack::{Named, Stack};

use super::{Case, Look, Sample};
use crate::architecture::{Architecture, Format};
use crate::assemble::{Input, Run, assemble};
use crate::schemes::Scheme;

/// Width of every head.
const D_HEAD: usize = 64;

/// One case, as written in a line of the list of cases.
struct Line {
    group: &'static str,
    scheme: &'static str,
    /// Number of blocks, width, number of tokens.
    size: [usize; 3],
    /// Keys of an architecture file.
    keys: &'static str,
    /// Correlation between input tokens, and correlation between the gradients of tokens at the output.
    correlations: [f64; 2],
    /// Rate of dropout everywhere; 0 for evaluation.
    dropout: f64,
    /// Factor on the scores of attention.
    sharpness: f64,
}

const fn line(
    group: &'static str,
    scheme: &'static str,
    size: [usize; 3],
    keys: &'static str,
    correlations: [f64; 2],
) -> Line {
    Line { group, scheme, size, keys, correlations, dropout: 0.0, sharpness: 1.0 }
}

const LINES: [Line; 28] = [
    line("pre", "xavier", [12, 256, 128], "activation = 'relu'", [0.2, 0.0]),
    line("pre", "xavier", [48, 128, 64], "activation = 'gelu'", [0.0, 0.5]),
    line("pre", "xavier", [192, 128, 64], "activation = 'gelu'", [0.4, 0.0]),
    line("pre", "gpt2", [12, 512, 64], "activation = 'gelu'", [0.1, 0.2]),
    line("pre", "gpt2", [48, 256, 64], "activation = 'gelu'", [0.0, 0.0]),
    line("pre", "gpt2", [24, 256, 64], "activation = 'swiglu'\nnorm = 'rmsnorm'", [0.2, 0.0]),
    line("pre", "normal:0.02", [24, 256, 128], "activation = 'swiglu'\nnorm = 'rmsnorm'", [0.6, 0.3]),
    line("pre", "xavier", [24, 256, 64], "activation = 'swiglu'\nnorm = 'rmsnorm'", [0.3, 0.5]),
    line("pre", "dslm", [24, 256, 128], "activation = 'relu'", [0.2, 0.0]),
    line("pre", "dslm", [192, 128, 64], "activation = 'relu'", [0.2, 0.0]),
    Line { dropout: 0.1, ..line("pre", "dslm", [48, 128, 64], "activation = 'gelu'", [0.0, 0.2]) },
    Line { dropout: 0.1, ..line("pre", "xavier", [12, 256, 64], "activation = 'gelu'", [0.2, 0.2]) },
    Line { sharpness: 2.25, ..line("pre", "xavier", [12, 256, 64], "activation = 'gelu'", [0.2, 0.0]) },
    Line { sharpness: 0.04, ..line("pre", "xavier", [24, 128, 128], "activation = 'gelu'", [0.5, 0.0]) },
    line("post", "xavier", [6, 512, 64], "activation = 'relu'", [0.2, 0.0]),
    line("post", "xavier", [12, 256, 128], "activation = 'gelu'", [0.0, 0.0]),
    line("post", "xavier", [24, 128, 64], "activation = 'relu'", [0.1, 0.2]),
    line("post", "deepnorm", [24, 256, 64], "activation = 'gelu'", [0.2, 0.0]),
    line("post", "deepnorm", [96, 128, 64], "activation = 'relu'", [0.3, 0.3]),
    line("post", "dslm", [24, 256, 128], "activation = 'relu'", [0.2, 0.0]),
    line("post", "dslm", [96, 128, 64], "activation = 'gelu'", [0.4, 0.0]),
    Line { dropout: 0.1, ..line("post", "xavier", [6, 256, 64], "activation = 'gelu'", [0.3, 0.5]) },
    line("sandwich", "xavier", [12, 256, 64], "activation = 'gelu'", [0.2, 0.0]),
    line("sandwich", "gpt2", [48, 128, 64], "activation = 'swiglu'\nnorm = 'rmsnorm'", [0.0, 0.2]),
    Line { dropout: 0.1, ..line("sandwich", "xavier", [24, 128, 64], "activation = 'relu'", [0.6, 0.0]) },
    line("peri", "xavier", [24, 256, 64], "activation = 'swiglu'\nnorm = 'rmsnorm'\nembedding_norm = true", [0.1, 0.0]),
    line("reordered", "normal:0.02", [24, 256, 64], "activation = 'swiglu'\nnorm = 'rmsnorm'", [0.2, 0.2]),
    line("layernorm-scaling", "gpt2", [48, 256, 64], "activation = 'gelu'", [0.2, 0.0]),
];

/// The cases, one line each.
pub(super) fn cases() -> Vec<Case> {
    LINES.iter().map(case).collect()
}

fn case(line: &Line) -> Case {
    let Line { group, scheme, size: [blocks, width, seq_len], keys, correlations: [r, r_g], dropout, sharpness } =
        *line;
    let placement = match group {
        "post" => "post",
        "sandwich" | "peri" => "sandwich",
        "reordered" => "reordered",
        _ => "pre",
    };
    let attention_scale = sharpness / (D_HEAD as f64).sqrt();
    let text = format!(
        "n_layers = {blocks}\nd_model = {width}\nn_heads = {}\nseq_len = {seq_len}\ndropout = {dropout}\n\
         attention_dropout = {dropout}\nattention_scale = {attention_scale}\nnorm_placement = '{placement}'\n{keys}",
        width / D_HEAD
    );
    let architecture = Architecture::from_file_text(&text, Format::Toml).expect("the file is ours");
    let scheme_of = Scheme::parse(scheme).expect("the scheme is ours");
    let run = Run { train: dropout > 0.0, grad_correlation: r_g, ..Run::default() };
    let mut stack = assemble(&architecture, &scheme_of, &Input::Correlation(r), &run).expect("they fit").stack;
    if group == "layernorm-scaling" {
        scale_norms(&mut stack);
    }
    let words = keys.replace("activation = ", "").replace("norm = ", "").replace('\n', ", ").replace('\'', "");
    let regime = if dropout > 0.0 { format!(", dropout {dropout}") } else { String::new() };
    let scores = if sharpness.to_bits() == 1f64.to_bits() { String::new() } else { format!(", scores × {sharpness}") };
    Case {
        group,
        name: format!("{scheme}, {blocks} × {width}, {seq_len} tokens, {words}, r {r}, r_g {r_g}{regime}{scores}"),
        sample: Sample::Stack { stack: Box::new(stack), std_error: 0.012, replicates: [64, 2048] },
        look: Look::Everything,
    }
}

/// Applies LayerNorm-Scaling (Sun et al. 2025, "The Curse of Depth in Large Language Models"): multiplies the gains of
/// the norms of block l, from 1, by 1/√l. The weights come from another scheme than in `ln-scaling`.
fn scale_norms(stack: &mut Stack) {
    stack.change(|named| {
        let Named::Norm(name, norm) = named else { return };
        let index = name.strip_prefix("blocks.").and_then(|rest| rest.split('.').next());
        if let Some(block) = index.and_then(|index| index.parse::<usize>().ok()) {
            norm.gain *= ((block + 1) as f64).powf(-0.5);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_network_with_a_name_of_its_own() {
        let mut names: Vec<String> = cases().into_iter().map(|case| format!("{} {}", case.group, case.name)).collect();
        assert!(names.len() >= 24);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINES.len());
    }
}
