//! How attention knows positions: masks and windows, rotations, biases of scores.

use sigprop_stack::{Disentangled, Mask, PositionBias, Rotary, Tensor};

use super::Block;
use crate::architecture::{self, Positions};
use crate::recipe::{Fans, Role, Table};

impl Block<'_> {
    /// The number of tokens that a query attends to; `None` if there is no limit.
    pub(super) fn window(&self) -> Option<usize> {
        self.blocks.architecture.windows.get(self.index).copied().filter(|&window| window > 0)
    }

    /// The attention mask. A window includes the query itself; it lies before the query in causal attention and around
    /// it otherwise.
    pub(super) fn mask(&self) -> Mask {
        match (self.blocks.architecture.causal, self.window()) {
            (true, window) => Mask { before: window.map(|window| window - 1), ..Mask::CAUSAL },
            (false, Some(window)) => Mask { before: Some(window / 2), after: Some(window / 2) },
            (false, None) => Mask::FULL,
        }
    }

    /// The rotation of queries and keys, if this block has one.
    pub(super) fn rotary(&self) -> Option<Rotary> {
        let architecture = self.blocks.architecture;
        let rotated = architecture.rotated.get(self.index).copied().unwrap_or(true);
        if architecture.positions != Positions::Rotary || !rotated {
            return None;
        }
        let d_head = architecture.latent.map_or_else(|| self.head_sizes().d_head, |latent| latent.d_rope);
        let usual = |base| Rotary::new(d_head, architecture.rotary_dim, base);
        let window = self.window().map(|_| (&architecture.rotary_window_frequencies, architecture.rotary_window_base));
        Some(match (window, &architecture.rotary_frequencies) {
            (Some((Some(frequencies), _)), _) | (Some((None, None)) | None, Some(frequencies)) => {
                Rotary { d_head, frequencies: frequencies.clone() }
            }
            (Some((None, Some(base))), _) => usual(base),
            (Some((None, None)) | None, None) => usual(architecture.rotary_base),
        })
    }

    /// The factor on rotated features in this block.
    pub(super) fn rotary_scale(&self) -> f64 {
        let architecture = self.blocks.architecture;
        if self.window().is_some() { architecture.rotary_window_scale } else { architecture.rotary_scale }
    }

    /// The bias that positions add to the scores of the heads at `path`, if there is one.
    pub(super) fn position_bias(&self, path: &str) -> Option<PositionBias> {
        let architecture = self.blocks.architecture;
        if let Some(positions) = architecture.disentangled {
            return Some(PositionBias::Disentangled(Box::new(self.disentangled(path, positions))));
        }
        match architecture.positions {
            Positions::Alibi => {
                Some(PositionBias::Alibi { slopes: alibi_slopes(architecture.n_heads, architecture.alibi_scale) })
            }
            Positions::Relative | Positions::LearnedRelative => {
                let init = self.blocks.recipe.embedding(architecture, Table::RelativeBias);
                let table = if architecture.relative_shared {
                    Tensor { name: format!("{}relative_bias", self.blocks.prefix), init }
                } else {
                    self.tensor(path, ".relative_bias", init)
                };
                Some(PositionBias::Relative {
                    table,
                    buckets: architecture.relative_buckets,
                    max_distance: architecture.relative_max_distance,
                    bidirectional: !architecture.causal,
                })
            }
            Positions::None | Positions::Learned | Positions::Sinusoidal | Positions::Rotary => None,
        }
    }

    /// The scores of contents with relative positions of the heads at `path`. All blocks have one table.
    fn disentangled(&self, path: &str, positions: architecture::Disentangled) -> Disentangled {
        let architecture = self.blocks.architecture;
        let init = self.blocks.recipe.embedding(architecture, Table::RelativeEmbedding);
        let width = architecture.n_heads * self.head_sizes().d_head;
        let map = |name: &str, role, has_map: bool| {
            let name = if positions.shared_maps { name.to_owned() } else { format!("position_{name}") };
            let fans = Fans::new(architecture.d_model, width);
            has_map.then(|| self.linear_map(&format!("{path}.{name}"), role, fans, architecture.qkv_biases))
        };
        Disentangled {
            table: Tensor { name: format!("{}relative_embedding", self.blocks.prefix), init },
            span: positions.span,
            max_distance: positions.max_distance,
            norm: architecture.norm.filter(|_| positions.norm),
            dropout_rate: self.blocks.rate(architecture.dropout),
            key: map("key", Role::Key, positions.keys),
            query: map("query", Role::Query, positions.queries),
        }
    }
}

/// The slopes of ALiBi, times `factor`: 2^(−8h/H) for h = 1 … H if H is a power of two; otherwise the slopes of the
/// power below, then every other slope of the power above (Press et al. 2022, `get_slopes` of the authors' code).
fn alibi_slopes(n_heads: usize, factor: f64) -> Vec<f64> {
    let of = |count: usize| (1..=count).map(move |head| factor * 2f64.powf(-8.0 * head as f64 / count as f64));
    let below = 1 << n_heads.ilog2();
    of(below).chain(of(2 * below).step_by(2).take(n_heads - below)).collect()
}

#[cfg(test)]
mod tests {
    use super::alibi_slopes;

    #[test]
    fn slopes_are_geometric_or_interleaved() {
        let assert_close = |got: Vec<f64>, expected: &[f64]| {
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(expected) {
                approx::assert_relative_eq!(got, expected, max_relative = 1e-14);
            }
        };
        assert_close(alibi_slopes(4, 1.0), &[0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_close(alibi_slopes(1, 0.5), &[1.0 / 512.0]);
        assert_close(alibi_slopes(3, 1.0), &[0.0625, 0.003_906_25, 0.25]);
    }
}
