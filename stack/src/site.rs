//! A point in a stack.

use std::fmt;

use crate::{Stack, Stream};

/// A point in a stack: the output of a node.
#[derive(Clone, Debug)]
pub struct Site<'s> {
    stream: Option<&'s str>,
    /// Names of nodes joined by dots, after the name of the stream if sites have it.
    path: String,
    /// The length of the path before each name was added.
    ends: Vec<usize>,
    /// The nodes around this site that share the parameters of other sites, from the outside in.
    shared: Vec<Shared>,
    pub(crate) layer: i64,
    pub(crate) recomputing: bool,
    pub(crate) expert: Option<usize>,
    /// True inside an expert whose input is multiplied by its weight.
    pub(crate) is_weighed: bool,
}

/// A node that shares the parameters of another site.
#[derive(Clone, Debug)]
struct Shared {
    /// The length of the path of the node.
    end: usize,
    /// The path of the other site.
    path: String,
}

impl<'s> Site<'s> {
    /// The start of a stream of `stack`.
    pub(crate) fn of(stack: &'s Stack, stream: &'s Stream) -> Self {
        Self::start((stack.streams.len() > 1).then_some(stream.name.as_str()))
    }

    /// The start of a stream. `stream` is the prefix of its sites, if they need one.
    pub(crate) fn start(stream: Option<&'s str>) -> Self {
        let path = stream.unwrap_or_default().to_owned();
        Self {
            stream,
            path,
            ends: Vec::new(),
            shared: Vec::new(),
            layer: -1,
            recomputing: false,
            expert: None,
            is_weighed: false,
        }
    }

    /// Enters the node `name`, which shares the parameters of the site at the path `shared`, if there is one.
    pub(crate) fn push(&mut self, name: &str, shared: Option<&str>) {
        let inside = self.is_inside();
        self.ends.push(self.path.len());
        if inside {
            self.path.push('.');
        }
        self.path.push_str(name);
        let end = self.path.len();
        self.shared.extend(shared.map(|path| Shared { end, path: path.to_owned() }));
    }

    /// Leaves the node that was entered last.
    pub(crate) fn pop(&mut self) {
        self.path.truncate(self.ends.pop().unwrap_or_default());
        self.shared.pop_if(|shared| shared.end > self.path.len());
    }

    /// Returns true if a dot must precede the next name of the path.
    fn is_inside(&self) -> bool {
        self.stream.is_some() || !self.ends.is_empty()
    }

    /// The path: names joined by dots.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The layer: −1 for the input of block 0, i for block i, N after the last block.
    pub fn layer(&self) -> i64 {
        self.layer
    }

    /// The depth of nesting: 1 for the nodes of the stream itself.
    pub fn depth(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if this is a node of the stream itself, not one inside a block.
    pub fn is_stream_site(&self) -> bool {
        self.depth() == 1
    }

    /// Returns true if the forward pass is repeated here because its results were not kept.
    pub fn recomputing(&self) -> bool {
        self.recomputing
    }

    /// The name of the stream if there are several, else an empty string.
    pub fn stream(&self) -> &str {
        self.stream.unwrap_or_default()
    }

    /// Index of the expert around this site, in the innermost mixture; `None` outside mixtures.
    pub fn expert(&self) -> Option<usize> {
        self.expert
    }

    /// Returns true if the site is reported: of the experts of a mixture, only the first is, and none if weights
    /// multiply the inputs of experts.
    pub fn is_observed(&self) -> bool {
        !self.is_weighed && self.expert.is_none_or(|expert| expert == 0)
    }

    /// The name of the gains of a norm at this site, to which the stack gives no name of their own.
    pub fn gain(&self) -> String {
        self.parameter(".gain")
    }

    /// The name of the biases of a norm at this site.
    pub fn bias(&self) -> String {
        self.parameter(".bias")
    }

    /// The name of the factor on the branch of a residual connection at this site.
    pub fn scale(&self) -> String {
        self.parameter(".scale")
    }

    /// The name of a parameter that the stack does not name: the path of the site that owns it, and `ending`, which begins
    /// with a dot.
    pub fn parameter(&self, ending: &str) -> String {
        match self.shared.last() {
            Some(Shared { end, path }) => [path, &self.path[*end..], ending].concat(),
            None => [&self.path, ending].concat(),
        }
    }

    /// Returns the path of the node `name` in the same chain as this site.
    pub fn sibling(&self, name: &str) -> String {
        let mut neighbour = self.clone();
        neighbour.pop();
        neighbour.push(name, None);
        neighbour.path
    }
}

/// A name cut at the number of its block: `blocks.3.ffn.in.weight` into `blocks.`, 3 and `ffn.in.weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockName<'n> {
    /// The part before the number, which ends with a dot unless it is empty.
    pub before: &'n str,
    /// The number of the block.
    pub block: usize,
    /// The part after the number, without a dot; empty for the site of the block itself.
    pub path: &'n str,
}

impl<'n> BlockName<'n> {
    /// Cuts a name at its first part that is a number; `None` if no part is.
    ///
    /// ```
    /// use sigprop_stack::BlockName;
    ///
    /// let name = BlockName::of("transformer.h.3.mlp.c_fc.weight").unwrap();
    /// assert_eq!((name.before, name.block, name.path), ("transformer.h.", 3, "mlp.c_fc.weight"));
    /// assert_eq!(BlockName::of("final_norm.gain"), None);
    /// ```
    pub fn of(name: &'n str) -> Option<Self> {
        let mut start = 0;
        for part in name.split('.') {
            let end = start + part.len();
            if let Ok(block) = part.parse() {
                return Some(Self { before: &name[..start], block, path: name.get(end + 1..).unwrap_or_default() });
            }
            start = end + 1;
        }
        None
    }

    /// Returns true if a site is a block of its stream.
    pub fn is_block(site: &str) -> bool {
        BlockName::of(site).is_some_and(|name| name.path.is_empty())
    }
}

/// The path.
impl fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
