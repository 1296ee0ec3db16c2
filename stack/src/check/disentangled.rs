//! Checks of scores of contents with relative positions.

use super::{Widths, range, rate, size, value};
use crate::{Attention, Disentangled, NormKind, StackError, Values};

impl<'s> Widths<'s> {
    /// Checks the table of positions, its norm and its maps.
    pub(super) fn disentangled(
        &mut self,
        site: &str,
        attention: &Attention,
        positions: &'s Disentangled,
    ) -> Result<(), StackError> {
        if attention.softcap.is_some() {
            return Err(value(site, "softcap", "absent where contents have scores with positions", "a cap".to_owned()));
        }
        let span = positions.span;
        range(site, "span", span as f64, 2.0..=1e6, "from 2 to 10⁶")?;
        if let Some(most) = positions.max_distance.filter(|&most| most < span / 2 + 2) {
            return Err(value(site, "max_distance", "at least span/2 + 2", most.to_string()));
        }
        rate(site, "dropout_rate of positions", positions.dropout_rate)?;
        if positions.maps().next().is_none() {
            return Err(value(site, "bias", "a map of positions to keys or to queries", "neither".to_owned()));
        }
        let width = positions.width();
        size(site, "width of positions", width)?;
        self.tensor(site, &positions.table, [2 * span, width])?;
        if let Some(norm) = &positions.norm {
            if !matches!(norm.kind, NormKind::LayerNorm | NormKind::RmsNorm) || norm.groups != 1 {
                let expected = "a norm over all features, layernorm or rmsnorm, for positions";
                return Err(value(site, "norm", expected, format!("{:?} in {} groups", norm.kind, norm.groups)));
            }
            Self::norm_values(site, norm)?;
            self.parameter(site, positions.gain().into(), [width, 1], Values::Gains(*norm))?;
        }
        let heads = [attention.n_kv_heads, attention.n_heads];
        for (map, heads) in [&positions.key, &positions.query].into_iter().zip(heads) {
            let Some(map) = map else { continue };
            for (expected, got) in [(width, map.fan_in), (heads * attention.d_head, map.fan_out)] {
                if expected != got {
                    return Err(StackError::Width { site: format!("{site}, map of positions"), expected, got });
                }
            }
            self.linear(site, map)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Attention, Component, Disentangled, Gaussian, GradientSeed, Init, Linear, Node, Norm, NormKind, Op,
        PositionBias, Source, Stack, Stream, Tensor, check,
    };

    fn map(name: &str, fan_out: usize) -> Linear {
        let weight = Tensor { name: name.to_owned(), init: Init::Normal { std: 0.1 } };
        Linear { fan_in: 8, fan_out, weight, bias: None, standardised: None }
    }

    fn checked(positions: Disentangled) -> Result<(), String> {
        let chain = |name: &str| vec![Node::apply(name, Component::Linear(map(name, 8)))];
        let heads = Attention {
            bias: Some(PositionBias::Disentangled(Box::new(positions))),
            ..Attention::plain(2, 2, 4, ["query", "key", "value"].map(chain))
        };
        let source = Source::Gaussian(Gaussian { width: 8, mean: 0.0, variance: 1.0, correlation: 0.0 });
        let body = vec![Node::new("heads", Op::Attention(heads))];
        let stream = Stream { name: "main".to_owned(), seq_len: 4, source, body };
        check(&Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.0 }))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn errors_name_the_number() {
        let table = Tensor { name: "table".to_owned(), init: Init::Normal { std: 0.1 } };
        let norm = Some(Norm::plain(NormKind::LayerNorm, 1e-7));
        let (key, query) = (Some(map("key", 8)), Some(map("position", 8)));
        let valid = || Disentangled {
            table: table.clone(),
            span: 4,
            max_distance: Some(8),
            norm,
            dropout_rate: 0.1,
            key: key.clone(),
            query: query.clone(),
        };
        assert_eq!(checked(valid()), Ok(()));
        let batch = Norm::plain(NormKind::BatchNorm { training: false }, 1e-7);
        for (wrong, expected) in [
            (Disentangled { span: 1, max_distance: None, ..valid() }, "span must be from 2 to 10⁶"),
            (Disentangled { max_distance: Some(3), ..valid() }, "max_distance must be at least span/2 + 2"),
            (Disentangled { key: None, query: None, ..valid() }, "a map of positions to keys or to queries"),
            (Disentangled { key: Some(map("wide", 12)), ..valid() }, "12"),
            (Disentangled { norm: Some(batch), ..valid() }, "layernorm or rmsnorm"),
            (Disentangled { dropout_rate: 1.5, ..valid() }, "dropout_rate of positions"),
        ] {
            let error = checked(wrong).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
