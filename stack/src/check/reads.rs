//! The check of parts, attentions and sources that read something of another part of the network.

use foldhash::HashMap;

use super::value;
use crate::{Embedding, Node, Op, Read, Site, Source, Stack, StackError};

/// Refuses reads of signals that do not exist yet, and reads elsewhere than at the starts of parts.
pub(super) fn check(stack: &Stack) -> Result<(), StackError> {
    for (index, stream) in stack.streams.iter().enumerate() {
        let sites = stream.body.iter().flat_map(|node| node.op.reads()).filter_map(Read::site);
        let has_run = sites.map(|path| (path, false)).collect();
        let mut reads = Reads { stream: index, site: Site::of(stack, stream), has_run };
        reads.source(stack)?;
        reads.body(&stream.body, 0)?;
    }
    Ok(())
}

/// The reads of a stream.
struct Reads<'s> {
    /// Index of the stream.
    stream: usize,
    site: Site<'s>,
    /// The sites that parts read, by their paths; true if they have run.
    has_run: HashMap<&'s str, bool>,
}

impl Reads<'_> {
    /// Checks the stream whose ids the source reads.
    fn source(&self, stack: &Stack) -> Result<(), StackError> {
        let stream = &stack.streams[self.stream];
        let Source::Embedding(Embedding { ids, same_ids_as: Some(other), .. }) = &stream.source else { return Ok(()) };
        self.earlier_stream("same_ids_as", *other)?;
        let other = &stack.streams[*other];
        match &other.source {
            Source::Embedding(known) if known.ids == *ids && other.seq_len == stream.seq_len => Ok(()),
            Source::Embedding(_) | Source::Gaussian(_) => {
                let expected = "a stream with the same distribution of ids and as many of them";
                Err(value(&stream.name, "same_ids_as", expected, other.name.clone()))
            }
        }
    }

    /// Checks the nodes of a chain from index `first` on.
    fn body(&mut self, body: &[Node], first: usize) -> Result<(), StackError> {
        for node in &body[first..] {
            self.site.push(&node.name, None);
            self.op(&node.op)?;
            if let Some(has_run) = self.has_run.get_mut(self.site.path()) {
                *has_run = true;
            }
            self.site.pop();
        }
        Ok(())
    }

    fn op(&mut self, op: &Op) -> Result<(), StackError> {
        match op {
            Op::Read(_) => {
                let expected = "the first node of a part of a sum, a product or a concatenation";
                Err(value(self.site.path(), "read", expected, "a node elsewhere".to_owned()))
            }
            Op::Sum(_) | Op::Product(_) | Op::Concat(_) => self.fan(op),
            Op::Attention(attention) => {
                attention.memory.map_or(Ok(()), |memory| self.earlier_stream("memory", memory))?;
                self.bodies(op)
            }
            Op::Mixture(mixture) => {
                if mixture.expert.iter().any(|node| node.op.reads().next().is_some()) {
                    return Err(value(self.site.path(), "read", "outside experts", "a part of an expert".to_owned()));
                }
                self.bodies(op)
            }
            Op::Apply(_) | Op::Chain(_) | Op::Recurrence(_) => self.bodies(op),
        }
    }

    fn bodies(&mut self, op: &Op) -> Result<(), StackError> {
        op.bodies().try_for_each(|body| self.body(body, 0))
    }

    /// Checks the parts of a fan, one of which must read the common input.
    fn fan(&mut self, op: &Op) -> Result<(), StackError> {
        let mut reads_input = false;
        for body in op.bodies() {
            let read = match body.first().map(|node| (&node.name, &node.op)) {
                Some((name, Op::Read(read))) => Some((name, read)),
                Some(_) | None => None,
            };
            if let Some((name, read)) = read {
                self.site.push(name, None);
                self.read(read)?;
                self.site.pop();
            }
            reads_input |= read.is_none();
            self.body(body, usize::from(read.is_some()))?;
        }
        if reads_input || op.bodies().next().is_none() {
            return Ok(());
        }
        Err(value(self.site.path(), "parts", "at least one without a read", "none".to_owned()))
    }

    fn read(&self, read: &Read) -> Result<(), StackError> {
        match read {
            Read::Stream(stream) => self.earlier_stream("read.stream", *stream),
            Read::Site(path) if self.has_run[path.as_str()] => Ok(()),
            Read::Site(path) => {
                let expected = "the path of an earlier site of the same stream";
                Err(value(self.site.path(), "read.site", expected, path.clone()))
            }
        }
    }

    fn earlier_stream(&self, field: &'static str, stream: usize) -> Result<(), StackError> {
        if stream < self.stream {
            return Ok(());
        }
        let got = format!("{stream} in stream {}", self.stream);
        Err(value(self.site.path(), field, "the index of an earlier stream", got))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Branch, Component, Dropout, Embedding, Gaussian, GradientSeed, Ids, Node, Op, PowerLaw, Read, Source, Stack,
        Stream, Sum, check,
    };

    fn stack(body: Vec<Node>) -> Stack {
        let source = Source::Gaussian(Gaussian { width: 4, mean: 0.0, variance: 1.0, correlation: 0.0 });
        let stream = Stream { name: "main".to_owned(), seq_len: 2, source, body };
        Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.0 })
    }

    /// Reads of later sites, of enclosing sites, of other streams and at other places are refused.
    #[test]
    fn reads_are_of_earlier_signals() {
        let read = |path: &str| Node::new("read", Op::Read(Read::Site(path.to_owned())));
        let dropout = |name: &str| Node::apply(name, Component::Dropout(Dropout { rate: 0.1 }));
        let sum = |name: &str, bodies: Vec<Vec<Node>>| {
            let branches = bodies.into_iter().map(|body| Branch::constant(1.0, body)).collect();
            Node::new(name, Op::Sum(Sum { branches }))
        };
        let of = |second: Node| check(&stack(vec![dropout("first"), second])).map_err(|error| error.to_string());
        assert_eq!(of(sum("sum", vec![vec![], vec![read("first"), dropout("part")]])), Ok(()));
        for (second, expected) in [
            (sum("sum", vec![vec![], vec![read("sum")]]), "sum.read: read.site must be the path of an earlier site"),
            (sum("sum", vec![vec![read("first")]]), "sum: parts must be at least one without a read, got none"),
            (sum("sum", vec![vec![], vec![dropout("part"), read("first")]]), "sum.read: read must be the first node"),
            (read("first"), "read: read must be the first node of a part"),
        ] {
            let error = of(second).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
        let stream = Node::new("read", Op::Read(Read::Stream(0)));
        let error = of(sum("sum", vec![vec![], vec![stream]])).expect_err("no earlier stream");
        assert_eq!(error, "sum.read: read.stream must be the index of an earlier stream, got 0 in stream 0");
    }

    /// The ids of a stream may be those of an earlier one of the same length and with the same distribution.
    #[test]
    fn ids_are_those_of_an_equal_stream() {
        let of = |same_ids_as, seq_len| {
            let ids = Ids::PowerLaw(PowerLaw { vocab_size: 5, exponent: 1.0 });
            let source = Source::Embedding(Embedding { same_ids_as, ..Embedding::new(4, ids, Vec::new()) });
            let body = vec![Node::apply("dropout", Component::Dropout(Dropout { rate: 0.1 }))];
            Stream { name: format!("{seq_len}"), seq_len, source, body }
        };
        let two = |same, seq_len| {
            let gradient = GradientSeed { stream: 1, correlation: 0.0 };
            check(&Stack::new("test", vec![of(None, 3), of(Some(same), seq_len)], gradient))
        };
        assert!(two(0, 3).expect_err("one name twice").to_string().contains("neighbours"));
        assert_eq!(
            two(0, 4).expect_err("two lengths").to_string(),
            "4: same_ids_as must be a stream with the same distribution of ids and as many of them, got 3"
        );
        let error = two(1, 4).expect_err("itself").to_string();
        assert!(error.ends_with("same_ids_as must be the index of an earlier stream, got 1 in stream 1"), "{error}");
    }
}
