//! The choice of the nodes that a replicate does not keep for its backward pass but computes again.
//!
//! ```text
//! node  kept: what the backward pass reads of it     computed again: its input, and `kept` of one such node at a time
//! ```
//!
//! The insides of parts of blocks, which are the branches at residual connections, come first. Of these only the steps
//! up to the last array that the backward pass reads are computed again ([`Signal`](crate::signal::Signal)). This takes
//! less than a quarter of the time of the forward and backward pass and saves three quarters of the memory. As many
//! parts are computed again as it takes to come down to [`SHARE`] or [`LITTLE`], and to the budget. If all parts are
//! not enough for the budget, whole blocks follow.

use std::collections::BTreeSet;

use sigprop_stack::GIBIBYTE;

/// The largest share of the memory for keeping everything that is used, even if more is allowed: a compromise between
/// memory and time (`docs/performance.md`).
const SHARE: f64 = 2.0 / 3.0;

/// Number of bytes that may be kept whatever [`SHARE`] is, if they are allowed.
const LITTLE: f64 = 0.25 * GIBIBYTE;

/// A node of a stream with the nodes directly inside it.
#[derive(Default)]
pub(super) struct Block {
    pub whole: Node,
    pub parts: Vec<Node>,
}

/// The memory of a node.
#[derive(Default)]
pub(super) struct Node {
    pub path: String,
    /// Bytes of the input of the node.
    pub input: f64,
    /// Bytes that stay until the backward pass of the node.
    pub kept: f64,
}

impl Node {
    /// Returns true if computing the node again saves memory.
    fn is_worth_it(&self) -> bool {
        self.kept > self.input
    }
}

/// The nodes that are computed again.
pub(super) struct Recomputation {
    /// Paths of these nodes.
    pub paths: BTreeSet<String>,
    /// Memory that a replicate then needs, in bytes.
    pub bytes: f64,
}

impl Recomputation {
    /// Chooses the first nodes that bring the memory within `budget`; `besides` is the memory of all other arrays.
    pub(super) fn new(blocks: &[Block], besides: f64, budget: f64) -> Self {
        let everything: f64 = blocks.iter().map(|block| block.whole.kept).sum();
        let mut choice = Self { paths: BTreeSet::new(), bytes: besides + everything };
        let mut largest = 0.0f64;
        let mut again = |choice: &mut Self, node: &Node, kept: f64| {
            choice.bytes += node.input - kept + (node.kept - largest).max(0.0);
            largest = largest.max(node.kept);
            choice.paths.insert(node.path.clone());
        };
        let moderate = budget.min(besides + LITTLE.max(SHARE * everything));
        for part in blocks.iter().flat_map(|block| &block.parts).filter(|part| part.is_worth_it()) {
            if choice.bytes <= moderate {
                break;
            }
            again(&mut choice, part, part.kept);
        }
        for Block { whole, parts } in blocks.iter().filter(|block| block.whole.is_worth_it()) {
            if choice.bytes <= budget {
                break;
            }
            let gone = parts.iter().filter(|part| choice.paths.contains(&part.path));
            let gone: f64 = gone.map(|part| part.kept - part.input).sum();
            again(&mut choice, whole, whole.kept - gone);
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chosen paths, and the memory in units, for two blocks that keep 9 each, 4 and 5 of them in parts. Arrays
    /// that are not kept need 10.
    fn chosen(unit: f64, budget: f64) -> (String, f64) {
        let node =
            |path: &str, input: f64, kept: f64| Node { path: path.to_owned(), input: unit * input, kept: unit * kept };
        let block = |name: &str| Block {
            whole: node(name, 1.0, 9.0),
            parts: vec![node(&format!("{name}.attention"), 1.0, 4.0), node(&format!("{name}.ffn"), 1.0, 5.0)],
        };
        let choice = Recomputation::new(&[block("a"), block("b")], 10.0 * unit, unit * budget);
        (choice.paths.into_iter().collect::<Vec<_>>().join(" "), choice.bytes / unit)
    }

    #[test]
    fn parts_come_before_blocks() {
        // 28 − 3 + 4, − 4 + 1, − 3, − 4.
        assert_eq!(chosen(1.0, 26.0), ("a.attention a.ffn".to_owned(), 26.0));
        assert_eq!(chosen(1.0, 19.0), ("a.attention a.ffn b.attention b.ffn".to_owned(), 19.0));
        // Whole blocks on top of all parts: − 1 + 4, − 1.
        assert_eq!(chosen(1.0, 0.0), ("a a.attention a.ffn b b.attention b.ffn".to_owned(), 21.0));
    }

    /// Without a limit at most 10 + 2/3 · 18 are used, and small networks keep everything.
    #[test]
    fn only_large_networks_are_computed_again_unasked() {
        assert_eq!(chosen(GIBIBYTE, f64::INFINITY), ("a.attention a.ffn b.attention b.ffn".to_owned(), 19.0));
        assert_eq!(chosen(1.0, f64::INFINITY), (String::new(), 28.0));
    }
}
