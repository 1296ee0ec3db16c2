//! A point in a stack.

use std::fmt;

/// A point in a stack: the output of a node.
#[derive(Clone, Debug)]
pub struct Site<'s> {
    stream: Option<&'s str>,
    /// Names joined by dots, behind that of the stream.
    path: String,
    /// Where the path ended before each name.
    ends: Vec<usize>,
    pub(crate) layer: i64,
    pub(crate) recomputing: bool,
    pub(crate) expert: Option<usize>,
}

impl<'s> Site<'s> {
    /// The start of a stream, `stream` being its prefix if sites need one.
    pub(crate) fn start(stream: Option<&'s str>) -> Self {
        let path = stream.unwrap_or_default().to_owned();
        Self { stream, path, ends: Vec::new(), layer: -1, recomputing: false, expert: None }
    }

    /// Goes into the node `name`.
    pub(crate) fn push(&mut self, name: &str) {
        let inside = self.is_inside();
        self.ends.push(self.path.len());
        if inside {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    /// Leaves the node gone into last.
    pub(crate) fn pop(&mut self) {
        self.path.truncate(self.ends.pop().unwrap_or_default());
    }

    /// Whether a path here has a name before the next.
    fn is_inside(&self) -> bool {
        self.stream.is_some() || !self.ends.is_empty()
    }

    /// The path: names joined by dots.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// −1 for what enters block 0, i for block i, N after the last block.
    pub fn layer(&self) -> i64 {
        self.layer
    }

    /// How many nodes it is in: 1 for those of the stream itself.
    pub fn depth(&self) -> usize {
        self.ends.len()
    }

    /// Whether this is a node of the stream itself, not one inside a block.
    pub fn is_stream_site(&self) -> bool {
        self.depth() == 1
    }

    /// Whether the forward pass through here repeats one whose results were not kept.
    pub fn recomputing(&self) -> bool {
        self.recomputing
    }

    /// The stream, if there are several.
    pub fn stream(&self) -> &str {
        self.stream.unwrap_or_default()
    }

    /// The expert this is in, of the innermost mixture.
    pub fn expert(&self) -> Option<usize> {
        self.expert
    }

    /// Whether the site is told: of the experts of a mixture only the first is.
    pub fn is_observed(&self) -> bool {
        self.expert.is_none_or(|expert| expert == 0)
    }

    /// The name of the gains of a norm here: they are tensors of no other name.
    pub fn gain(&self) -> String {
        [&self.path, ".gain"].concat()
    }

    /// The name of the biases of a norm here.
    pub fn bias(&self) -> String {
        [&self.path, ".bias"].concat()
    }

    /// The path of the neighbour `name` of this site.
    pub fn sibling(&self, name: &str) -> String {
        let mut neighbour = self.clone();
        neighbour.pop();
        neighbour.push(name);
        neighbour.path
    }
}

/// The path.
impl fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
