//! Translates the names of the measurements into ours.

use sigprop::agreement::Compared;
use sigprop_stack::Quantity;

/// The kind of number that a measurement is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Second moments of signals and gradients on the stream.
    Stream,
    /// Cross products of tokens on the stream.
    Cross,
    /// Second moments of the outputs of branches.
    Branch,
    /// Second moments of the gradients of weights.
    WeightGradient,
    /// Second moments of weights.
    Weight,
    /// Second moments at the first position; the gate ignores them.
    First,
}

impl Group {
    pub(super) const ALL: [Self; 6] =
        [Self::Stream, Self::Cross, Self::Branch, Self::WeightGradient, Self::Weight, Self::First];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Cross => "cross",
            Self::Branch => "branch",
            Self::WeightGradient => "weight_grad",
            Self::Weight => "weight",
            Self::First => "first",
        }
    }
}

/// The stream at whose end the measured gradient started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Last,
    Encoder,
}

/// The place where a measured number is predicted.
pub(super) enum Place {
    Site(String),
    /// The average over the tensors with these names, as far as they exist.
    Tensors(Vec<String>),
}

/// A measured number in our terms.
pub(super) struct Named {
    pub(super) group: Group,
    pub(super) quantity: &'static str,
    pub(super) loss: Loss,
    /// The predicted quantity at a site.
    pub(super) compared: Compared,
    pub(super) place: Place,
}

impl Named {
    /// Returns true if the theory of infinite width predicts the number at these widths: second moments of the stream
    /// and of its pairs of tokens.
    pub(super) fn is_leading(&self) -> bool {
        matches!(self.group, Group::Stream | Group::Cross)
    }
}

/// Translates a site, layer and statistic; `None` if the number is not predicted.
pub(super) fn named(site: &str, layer: i64, stat: &str) -> Option<Named> {
    let (prefix, site) = match site.split_once('.') {
        Some(("enc", rest)) => ("encoder.", rest),
        Some(("dec", rest)) => ("decoder.", rest),
        Some(_) | None => ("", site),
    };
    let (stat, loss) = match stat.strip_suffix("_encloss") {
        Some(stat) => (stat, Loss::Encoder),
        None => (stat, Loss::Last),
    };
    let block = format!("{prefix}blocks.{layer}");
    if let Some(weight) = site.strip_prefix("w.") {
        let (group, quantity) = match stat {
            "dw_m2" => (Group::WeightGradient, "weight_grad_second_moment"),
            "w_m2" => (Group::Weight, "weight_variance"),
            _ => return None,
        };
        let tensors = tensors(weight)?.iter().map(|name| format!("{block}.{name}.weight")).collect();
        return Some(Named {
            group,
            quantity,
            loss,
            compared: Compared::WeightGradient,
            place: Place::Tensors(tensors),
        });
    }
    let (place, on_stream) = match site {
        "embed" => (format!("{prefix}embeddings"), true),
        "block" => (block, true),
        "final" => (format!("{prefix}final_norm"), true),
        "attn_out" => (format!("{block}.attention.output"), false),
        "xattn_out" => (format!("{block}.cross_attention.output"), false),
        "mlp_out" => (format!("{block}.ffn.out"), false),
        _ => return None,
    };
    let (group, compared) = match (stat, on_stream) {
        ("m2", true) => (Group::Stream, Compared::SecondMoment),
        ("grad_m2", true) => (Group::Stream, Compared::Site(Quantity::GradVariance)),
        ("corr_raw", true) => (Group::Cross, Compared::CrossProduct),
        ("grad_corr_raw", true) => (Group::Cross, Compared::GradCrossProduct),
        ("m2_pos0", true) => (Group::First, Compared::Site(Quantity::VarianceFirst)),
        ("grad_m2_pos0", true) => (Group::First, Compared::Site(Quantity::GradVarianceFirst)),
        ("m2", false) => (Group::Branch, Compared::SecondMoment),
        _ => return None,
    };
    Some(Named { group, quantity: compared.name(), loss, compared, place: Place::Site(place) })
}

/// The tensors of a block that correspond to a measured weight, dense or of experts; `None` if the weight is unknown.
fn tensors(weight: &str) -> Option<&'static [&'static str]> {
    Some(match weight {
        "q" => &["attention.heads.query"],
        "k" => &["attention.heads.key"],
        "k_rope" => &["attention.heads.key.rope"],
        "v" => &["attention.heads.value"],
        "o" => &["attention.output"],
        "xq" => &["cross_attention.heads.query"],
        "xk" => &["cross_attention.heads.key"],
        "xv" => &["cross_attention.heads.value"],
        "xo" => &["cross_attention.output"],
        "fc1" | "wi" => &["ffn.in"],
        "fc2" | "wo" => &["ffn.out"],
        "gate" => &["ffn.gated.gate"],
        "up" => &["ffn.gated.up"],
        "down" => &["ffn.out", "ffn.experts.out"],
        "gate_up" => &["ffn.experts.gated.gate", "ffn.experts.gated.up"],
        "router" => &["ffn.experts.router"],
        _ => return None,
    })
}
