//! A point in a stack.

use std::fmt;

/// A point in a stack: the output of a node.
#[derive(Clone, Debug)]
pub struct Site<'s> {
    pub(crate) stream: Option<&'s str>,
    pub(crate) names: Vec<&'s str>,
    pub(crate) layer: i64,
    pub(crate) recomputing: bool,
    pub(crate) expert: Option<usize>,
}

impl<'s> Site<'s> {
    /// The start of a stream, `stream` being its prefix if sites need one.
    pub(crate) fn start(stream: Option<&'s str>) -> Self {
        Self { stream, names: Vec::new(), layer: -1, recomputing: false, expert: None }
    }

    /// −1 for what enters block 0, i for block i, N after the last block.
    pub fn layer(&self) -> i64 {
        self.layer
    }

    /// Whether this is a node of the stream itself, not one inside a block.
    pub fn is_stream_site(&self) -> bool {
        self.names.len() == 1
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
        format!("{self}.gain")
    }

    /// The path of the neighbour `name` of this site.
    pub fn sibling(&self, name: &str) -> String {
        let mut path: Vec<&str> = self.stream.into_iter().collect();
        path.extend(&self.names[..self.names.len().saturating_sub(1)]);
        path.push(name);
        path.join(".")
    }
}

/// The path: names joined by dots.
impl fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for name in self.stream.iter().chain(&self.names) {
            f.write_str(separator)?;
            f.write_str(name)?;
            separator = ".";
        }
        Ok(())
    }
}
