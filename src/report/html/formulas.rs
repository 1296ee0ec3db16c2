//! The rules in a report: the headers of the files that compute them.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use sigprop_stack::{Component, Node, Op, Source, Stack};

/// A rule as it is written at the top of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    file: &'static str,
}

macro_rules! rules {
    ($($constant:ident = $name:literal in $file:literal,)+) => {
        $(const $constant: Rule = Rule { name: $name, file: include_str!(concat!("../../", $file)) };)+
        #[cfg(test)]
        pub(super) const ALL: &[Rule] = &[$($constant),+];
    };
}

rules! {
    EMBEDDING = "embedding" in "mean_field/embedding.rs",
    LINEAR = "linear" in "mean_field/linear.rs",
    NORM = "norm" in "mean_field/norm.rs",
    ACTIVATION = "activation" in "mean_field/activation.rs",
    DROPOUT = "dropout" in "mean_field/dropout.rs",
    SCALE = "scale" in "mean_field/scale.rs",
    ROTARY = "rotary" in "mean_field/rotary.rs",
    CONVOLUTION = "convolution" in "mean_field/convolution.rs",
    PREPEND = "prepend" in "mean_field/prepend.rs",
    POOL = "pool" in "mean_field/pool.rs",
    SELECT = "select" in "mean_field/select.rs",
    READ = "read" in "predict/shared.rs",
    SUM = "sum" in "mean_field/sum.rs",
    PRODUCT = "product" in "mean_field/product.rs",
    CONCAT = "concat" in "mean_field/concat.rs",
    MIXTURE = "mixture" in "mean_field/mixture/mod.rs",
    RECURRENCE = "recurrence" in "mean_field/recurrence/mod.rs",
    ATTENTION = "attention" in "mean_field/attention/mod.rs",
    SOFTMAX = "softmax" in "mean_field/softmax/mod.rs",
    WIDTH = "finite width" in "finite_width/mod.rs",
}

impl Rule {
    /// Returns the rules that predict these stacks.
    pub(super) fn of<'s>(stacks: impl Iterator<Item = &'s Stack>) -> BTreeSet<Self> {
        let mut rules = BTreeSet::from([WIDTH]);
        for stack in stacks {
            for stream in &stack.streams {
                match &stream.source {
                    Source::Embedding(_) | Source::Gaussian(_) => rules.insert(EMBEDDING),
                };
                collect(&stream.body, &mut rules);
            }
        }
        rules
    }

    /// Returns the header of the file as HTML.
    pub(super) fn html(self) -> String {
        let text: String = self
            .file
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .fold(String::new(), |all, line| all + line.strip_prefix(' ').unwrap_or(line) + "\n");
        // Links lead into the documentation of the code, which is not in the report.
        let text = text.replace("[`", "`").replace("`]", "`");
        let events = Parser::new_ext(&text, Options::empty()).map(|event| match event {
            Event::Start(Tag::Heading { id, classes, attrs, .. }) => {
                Event::Start(Tag::Heading { level: HeadingLevel::H4, id, classes, attrs })
            }
            Event::End(TagEnd::Heading(_)) => Event::End(TagEnd::Heading(HeadingLevel::H4)),
            other => other,
        });
        let mut out = String::new();
        html::push_html(&mut out, events);
        out
    }
}

/// Adds the rules of all nodes.
fn collect(body: &[Node], rules: &mut BTreeSet<Rule>) {
    for node in body {
        match &node.op {
            Op::Apply(component) => {
                if let Component::Norm(norm) = component
                    && norm.steps().is_some()
                {
                    rules.extend([SCALE, ACTIVATION]);
                }
                rules.insert(match component {
                    Component::Linear(_) => LINEAR,
                    Component::Norm(_) => NORM,
                    Component::Activation(_) => ACTIVATION,
                    Component::Dropout(_) => DROPOUT,
                    Component::Scale(_) => SCALE,
                    Component::Rotary(_) => ROTARY,
                    Component::Embedding(_) => EMBEDDING,
                    Component::Convolution(_) => CONVOLUTION,
                    Component::Prepend(_) => PREPEND,
                    Component::Pool(_) => POOL,
                    Component::Select(_) => SELECT,
                });
            }
            Op::Chain(_) => {}
            Op::Read(_) => {
                rules.insert(READ);
            }
            Op::Sum(_) => {
                rules.insert(SUM);
            }
            Op::Product(_) => {
                rules.insert(PRODUCT);
            }
            Op::Concat(_) => {
                rules.insert(CONCAT);
            }
            Op::Mixture(_) => {
                rules.insert(MIXTURE);
            }
            Op::Recurrence(_) => {
                rules.insert(RECURRENCE);
            }
            Op::Attention(_) => rules.extend([ATTENTION, SOFTMAX]),
        }
        node.op.bodies().for_each(|body| collect(body, rules));
    }
}
