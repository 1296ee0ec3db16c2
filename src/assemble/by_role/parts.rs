//! The parts of a stack on which factors act: the weights and biases in its blocks, its tables, its residual connections.

use std::collections::HashSet;

use sigprop_stack::{BlockName, Named, RoleKind, Stack};

use super::places::Places;
use crate::architecture::Kind;
use crate::assemble::outline::outline;
use crate::recipe::Table;

/// The names of parts of a stack.
#[derive(Default)]
pub(crate) struct Parts {
    /// Weights of the linear maps in blocks.
    pub(crate) weights: HashSet<String>,
    /// Biases of these maps.
    pub(crate) biases: HashSet<String>,
    /// Tables of ids, positions, segments, and class tokens.
    pub(crate) tables: HashSet<String>,
    /// Sites of residual connections. A stack that was assembled has them from its architecture, and none here.
    pub(crate) residuals: HashSet<String>,
}

impl Parts {
    /// Finds the parts by their roles; in a stack without roles, which was assembled, by the names of its tensors.
    pub(crate) fn of(stack: &mut Stack) -> Self {
        if stack.roles.is_empty() { Self::by_name(stack) } else { Self::by_role(stack) }
    }

    fn by_role(stack: &Stack) -> Self {
        let Places { maps, tables, sums, norms: _ } = Places::of(stack);
        // Every hidden map of an MLP is in a block.
        let is_mlp = outline(stack).kind == Kind::Mlp;
        let mut parts = Self { residuals: sums.into_iter().collect(), ..Self::default() };
        for map in maps {
            if map.role.block.is_some() || is_mlp && map.role.kind == RoleKind::Other {
                parts.weights.insert(map.weight);
                parts.biases.extend(map.bias);
            }
        }
        let is_embedded = |table: &Table| !matches!(table, Table::RelativeBias | Table::RelativeEmbedding);
        parts.tables.extend(tables.into_iter().filter(|(_, table)| is_embedded(table)).map(|(name, _)| name));
        parts
    }

    fn by_name(stack: &mut Stack) -> Self {
        let mut parts = Self::default();
        stack.change(|named| {
            let Named::Tensor(tensor) = named else { return };
            let name = &tensor.name;
            let is_in_block = BlockName::of(name).is_some_and(|name| !name.path.is_empty());
            match name.rsplit('.').next().unwrap_or(name) {
                "weight" if is_in_block => parts.weights.insert(name.clone()),
                "bias" if is_in_block => parts.biases.insert(name.clone()),
                "weight" | "bias" => false,
                _ => name.split('.').any(|part| part == "embeddings") && parts.tables.insert(name.clone()),
            };
        });
        parts
    }
}
