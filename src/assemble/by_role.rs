//! A scheme for a stack that was not assembled from an architecture: every map by its role, tables by their kind.

mod parts;
mod places;

use std::collections::HashMap;

use sigprop_stack::{Init, Named, RoleKind, Stack};

use super::{AssembleError, outline::outline};
use crate::architecture::{Kind, Resolved};
use crate::caveat::{Caveat, Condition};
use crate::predict::{ForwardPass, PredictError, Theory};
use crate::recipe::{Outer, Projection, Projections, Recipe, Residual, Residuals, Role, Slot};
use crate::schemes::Scheme;
pub(crate) use parts::Parts;
use places::{Map, Places, block_of};

/// Replaces the distributions of tables and of all maps with a role by those of a scheme, and the scales of residual
/// connections if those of the scheme are not 1. Multiplies the gains of the norms in blocks by the factors of the
/// scheme. Returns reasons for caution.
///
/// # Errors
///
/// An error if the scheme is not defined for such a network, or if the stack has no roles.
pub fn initialise(stack: &mut Stack, scheme: &Scheme, theory: Theory) -> Result<Vec<Caveat>, AssembleError> {
    if stack.roles.is_empty() {
        return Err(AssembleError::NoRoles);
    }
    let places = Places::of(stack);
    let architecture = outline(stack).resolved()?;
    let recipe = scheme.recipe();
    recipe.fits(&architecture)?;
    let mut written: HashMap<String, Init> = HashMap::new();
    for map in &places.maps {
        if let Some(projection) = outside(map, recipe, &architecture) {
            map.write(projection, &mut written);
        }
    }
    written.extend(places.tables.iter().map(|(name, table)| (name.clone(), recipe.embedding(&architecture, *table))));
    write(stack, &written);
    let entered = || entered(stack, theory);
    let residuals = recipe.residuals(&architecture, &entered)?;
    let projections = recipe.projections(&architecture, &entered)?;
    let mut written: HashMap<String, Init> = HashMap::new();
    for map in &places.maps {
        if let Some(projection) = inside(map, &architecture, &projections) {
            map.write(projection, &mut written);
        }
    }
    write(stack, &written);
    write_scales(stack, &places, recipe, &residuals);
    let solved = recipe.solved(stack, &|name| written.contains_key(name))?;
    write(stack, &solved);
    stack.learning_rates.clear();
    let rates = recipe.learning_rates(&architecture).map(|_| {
        "the scheme has a learning rate per parameter, which a stack with roles does not get: a first step is predicted \
         with one rate for all"
            .to_owned()
    });
    let reasons = [recipe.caveat(&architecture), rates].into_iter().flatten();
    Ok(reasons.map(|why| Caveat::of("blocks.0", architecture.n_layers, Condition::Scheme(why))).collect())
}

/// Returns the distributions of a map outside the blocks; `None` if it is in a block. Every map of an MLP is in a block.
fn outside(map: &Map, recipe: &dyn Recipe, architecture: &Resolved) -> Option<Projection> {
    let place = match map.role.kind {
        RoleKind::Head => Outer::Head,
        RoleKind::Other if map.role.block.is_none() && architecture.kind == Kind::Encoder => Outer::Stem,
        RoleKind::Other
        | RoleKind::Query
        | RoleKind::Key
        | RoleKind::Value
        | RoleKind::AttentionOutput
        | RoleKind::FfnIn
        | RoleKind::FfnGate
        | RoleKind::FfnUp
        | RoleKind::FfnOut
        | RoleKind::Router => return None,
    };
    Some(recipe.outer(architecture, place, map.fans))
}

/// Returns the distributions of a map in a block; `None` if it is outside the blocks.
fn inside(map: &Map, architecture: &Resolved, projections: &Projections) -> Option<Projection> {
    let role = match map.role.kind {
        RoleKind::Query => Role::Query,
        RoleKind::Key => Role::Key,
        RoleKind::Value => Role::Value,
        RoleKind::AttentionOutput => Role::AttentionOutput,
        RoleKind::FfnIn => Role::FfnIn,
        RoleKind::FfnGate => Role::FfnGate,
        RoleKind::FfnUp => Role::FfnUp,
        RoleKind::FfnOut if map.is_expert => Role::ExpertOut,
        RoleKind::FfnOut => Role::FfnOut,
        RoleKind::Router => Role::Router,
        RoleKind::Other if map.role.block.is_some() || architecture.kind == Kind::Mlp => Role::Hidden,
        RoleKind::Other | RoleKind::Head => return None,
    };
    let block = map.role.block.unwrap_or(map.index).min(architecture.n_layers - 1);
    Some(projections(&Slot { architecture, role, block, fans: map.fans, cross: map.is_cross }))
}

/// Returns the signal at the first block.
fn entered(stack: &Stack, theory: Theory) -> Result<ForwardPass, PredictError> {
    let stream = &stack.streams[stack.gradient.stream];
    let mut pass = ForwardPass::in_theory(theory, stream);
    let before = stream.body.iter().take_while(|node| block_of(node, &stack.roles).is_none()).count();
    pass.through(&stream.body[..before])?;
    Ok(pass)
}

/// Writes the distributions of tensors, by name.
pub(super) fn write(stack: &mut Stack, inits: &HashMap<String, Init>) {
    stack.change(|named| {
        if let Named::Tensor(tensor) = named
            && let Some(init) = inits.get(&tensor.name)
        {
            tensor.init = *init;
        }
    });
}

/// Writes gains of norms and scales of residual connections.
fn write_scales(stack: &mut Stack, places: &Places, recipe: &dyn Recipe, residuals: &Residuals) {
    stack.change(|named| match named {
        Named::Norm(name, norm) => {
            if let Some((place, block)) = places.norms.get(&name) {
                norm.gain *= recipe.norm_gain(*place, *block);
            }
        }
        Named::Sum(site, sum) => {
            let Some(connection) = places.sums.iter().position(|known| *known == site) else { return };
            let Residual { skip, branch, parameter } = residuals(connection);
            if (skip, branch) == (1.0, 1.0) {
                return;
            }
            for part in &mut sum.branches {
                part.scale = if part.body.is_empty() { skip } else { branch };
                part.scale_parameter = if part.body.is_empty() { part.scale_parameter } else { parameter };
            }
        }
        Named::Tensor(_) | Named::Attention(_) => {}
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::architecture::{Activation, Architecture, Experts, NormChoice, NormPlacement, Positions, QkNorm};
    use crate::assemble::{Input, Run, assemble};
    use sigprop_stack::{MapRole, Multiplied, Weighting};

    /// The roles of a stack that was assembled, from the names of its tensors.
    pub(crate) fn with_roles(mut stack: Stack) -> Stack {
        let kinds = [
            ("heads.query", RoleKind::Query),
            ("heads.key", RoleKind::Key),
            ("heads.value", RoleKind::Value),
            ("attention.output", RoleKind::AttentionOutput),
            ("ffn.in", RoleKind::FfnIn),
            ("gated.gate", RoleKind::FfnGate),
            ("gated.up", RoleKind::FfnUp),
            ("ffn.out", RoleKind::FfnOut),
            ("experts.in", RoleKind::FfnIn),
            ("experts.out", RoleKind::FfnOut),
            ("experts.router", RoleKind::Router),
            ("linear", RoleKind::Other),
            ("head", RoleKind::Head),
        ];
        let mut names = Vec::new();
        stack.change(|named| {
            if let Named::Tensor(tensor) = named {
                names.push(tensor.name.clone());
            }
        });
        for name in names.iter().filter(|name| name.ends_with(".weight")) {
            let path = name.trim_end_matches(".weight");
            let Some((_, kind)) = kinds.iter().find(|(end, _)| path.ends_with(end)) else { continue };
            let block = path.strip_prefix("blocks.").and_then(|rest| rest.split('.').next()?.parse().ok());
            stack.roles.insert(name.clone(), MapRole { kind: *kind, block });
        }
        stack
    }

    fn assembled(architecture: &Architecture, scheme: &str) -> Stack {
        let scheme = Scheme::parse(scheme).expect("a scheme");
        assemble(architecture, &scheme, &Input::default(), &Run::default()).expect("a network").stack
    }

    /// A stack that was assembled with one scheme and initialised by its roles with another is the one that is assembled
    /// with the other.
    #[test]
    fn a_scheme_by_roles_is_the_scheme() {
        let shape = Architecture { n_layers: 3, d_model: 64, seq_len: 8, vocab_size: 50, ..Architecture::default() };
        let gated = Architecture {
            activation: Activation::Swiglu,
            norm: Some(NormChoice::Rmsnorm),
            d_ff: Some(96),
            n_heads: Some(4),
            n_kv_heads: Some(2),
            ..shape.clone()
        };
        let post = Architecture { norm_placement: NormPlacement::Post, ..shape.clone() };
        let experts = Experts {
            n_experts: 4,
            top_k: 2,
            d_ff: 96,
            shared_d_ff: 0,
            shared_gate: false,
            weighting: Weighting::Softmax,
            weights_multiply: Multiplied::Outputs,
            router_scale: 1.0,
            own_norms: false,
            normalised: true,
            scale: 1.0,
            first_dense: 0,
            every: 1,
        };
        let mixture = Architecture { experts: Some(experts), ..shape.clone() };
        let mlp = Architecture { n_layers: 3, d_model: 64, seq_len: 8, ..Architecture::mlp() };
        for architecture in [&shape, &gated, &post, &mixture, &mlp] {
            for scheme in
                ["xavier", "gpt2", "kaiming", "lecun", "normal:0.1", "dslm", "ln-scaling", "deepnorm", "rezero", "unit"]
            {
                assert_is_scheme(architecture, scheme);
            }
        }
    }

    /// Asserts that a stack that is initialised by its roles with a scheme is the one that is assembled with it, if the
    /// scheme is defined for the architecture.
    fn assert_is_scheme(architecture: &Architecture, scheme: &str) {
        let parsed = Scheme::parse(scheme).expect("a scheme");
        let Ok(expected) = assemble(architecture, &parsed, &Input::default(), &Run::default()) else { return };
        let mut stack = with_roles(assembled(architecture, "uniform:0.3"));
        initialise(&mut stack, &parsed, Theory::default()).expect("a network");
        stack.roles.clear();
        let expected = Stack { learning_rates: stack.learning_rates.clone(), ..expected.stack };
        assert!(stack == expected, "{scheme}, {:?}", architecture.norm_placement);
    }

    /// The scheme `unit` follows the signal in the stack itself, with masks, rotations and norms of queries and keys. No
    /// positions are added to the embeddings of tokens, so that these have all of the variance.
    #[test]
    fn unit_follows_the_stack() {
        let architecture = Architecture {
            n_layers: 3,
            d_model: 64,
            n_heads: Some(4),
            seq_len: 8,
            vocab_size: 50,
            positions: Positions::Rotary,
            causal: true,
            qk_norm: QkNorm::Head,
            norm_placement: NormPlacement::Sandwich,
            ..Architecture::default()
        };
        assert_is_scheme(&architecture, "unit");
    }
}
