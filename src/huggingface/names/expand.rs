//! Expansion of modules into the parameters of one network.

use std::collections::{HashMap, HashSet};

use sigprop_stack::{Parameter, Values};

use super::{Axes, Columns, Gain, Held, Holds, Layout, Module, Names, Part, Start};

impl Names {
    /// Returns every tensor of a checkpoint that holds some of `parameters`, the parameters of a stack. Several tensors
    /// may hold the same parameter: tied tables have names of their own.
    pub fn held(&self, parameters: &[Parameter]) -> Vec<Held> {
        self.renamed(self.plain(parameters), parameters)
    }

    /// Returns the tensors of [`held`](Self::held) under their names in a checkpoint of a class with a head. If the
    /// head has parameters of its own, names of the base model get their prefix. Names given by the user are already
    /// complete.
    pub fn whole(&self, parameters: &[Parameter]) -> Vec<Held> {
        let mut held = self.held(parameters);
        let of_base = held.iter().filter(|held| held.base.is_none());
        let known: HashSet<String> = of_base.flat_map(Held::parameters).map(str::to_owned).collect();
        let is_own = |held: &Held| held.base.is_some() && held.parameters().any(|parameter| !known.contains(parameter));
        if self.rules.is_empty() && held.iter().any(is_own) {
            for Held { name, pattern, .. } in held.iter_mut().filter(|held| held.base.is_none()) {
                *name = format!("{}{name}", self.head.base);
                *pattern = format!("{}{pattern}", self.head.base);
            }
        }
        held
    }

    /// Returns the tensors of [`held`](Self::held) without names given by the user. Parameters for which a convention
    /// has no name keep their name in the stack.
    pub(super) fn plain(&self, parameters: &[Parameter]) -> Vec<Held> {
        let Some(modules) = self.modules else { return self.of_the_stack(parameters) };
        let mut held = self.expanded(modules, parameters);
        held.extend(self.in_head(parameters));
        if self.convention().is_some() {
            let named: HashSet<String> = held.iter().flat_map(Held::parameters).map(str::to_owned).collect();
            let others = self.of_the_stack(parameters).into_iter();
            held.extend(others.filter(|held| !named.contains(&held.name)));
        }
        held
    }

    fn in_head(&self, parameters: &[Parameter]) -> Vec<Held> {
        let held = self.expanded(&[&self.head.modules], parameters).into_iter();
        held.map(|held| Held { base: Some(self.head.base), ..held }).collect()
    }

    fn expanded(&self, modules: &[&[Module]], parameters: &[Parameter]) -> Vec<Held> {
        let known: HashMap<&str, &Parameter> =
            parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
        let blocks = parameters.iter().filter_map(|parameter| block(&parameter.name)).max().map_or(0, |last| last + 1);
        let expansion = Expansion { names: self, known };
        modules
            .iter()
            .copied()
            .flatten()
            .flat_map(|module| {
                let blocks = if module.name.contains('*') { blocks } else { 1 };
                (0..blocks).flat_map(|block| expansion.module(module, block)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Returns every parameter under its name in the stack, and the biases of LayerNorms if these have biases.
    fn of_the_stack(&self, parameters: &[Parameter]) -> Vec<Held> {
        let under_its_name = |part: Part| {
            let name = part.parameters[0].clone();
            whole(&name, &starred(&name), part)
        };
        let held = |parameter| {
            let itself = under_its_name(part(parameter, None, Gain::Whole));
            let experts = (parameter.copies > 1).then_some(parameter.copies);
            let itself = Held { shape: experts.into_iter().chain(itself.shape).collect(), ..itself };
            let bias = norm_bias(parameter, std::slice::from_ref(&parameter.name), self.norm_biases);
            [Some(itself), bias.map(under_its_name)].into_iter().flatten()
        };
        let is_parameter = |parameter: &&Parameter| self.layer_scale || !matches!(parameter.values, Values::Scale(_));
        parameters.iter().filter(is_parameter).flat_map(held).collect()
    }

    /// Returns the number of parameters that the library's class has for a network with these parameters; `None` if the
    /// network is not from the library.
    pub fn count(&self, parameters: &[Parameter]) -> Option<u64> {
        // Heads are counted with the class, in addition to these.
        let held = self.expanded(self.modules?, parameters);
        let holds = |held: &Held| {
            held.parts.iter().map(|part| (part.parameters.first().cloned(), part.expert)).collect::<Vec<_>>()
        };
        // The library also reads a tensor of all experts from separate tensors, one per expert.
        let whole: HashSet<_> = held.iter().flat_map(holds).filter(|(_, expert)| expert.is_none()).collect();
        let mut counted = HashSet::new();
        let once = held.iter().filter(|held| {
            let elsewhere = |(name, expert): &(Option<String>, Option<usize>)| {
                expert.is_some() && whole.contains(&(name.clone(), None))
            };
            // Parts that are fused into one tensor in a checkpoint are separate in a module.
            let parts = holds(held).into_iter();
            parts.filter(|part| !elsewhere(part) && counted.insert(part.clone())).count() > 0
        });
        Some(once.map(|held| held.shape.iter().map(|axis| *axis as u64).product::<u64>()).sum::<u64>() + self.beside)
    }
}

impl Held {
    /// Returns the names of the network's parameters that this tensor holds.
    fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| part.parameters.iter().map(String::as_str))
    }
}

/// The norms that parallel branches may share.
const ATTENTION_NORM: &str = "blocks.*.attention.norm";
const FFN_NORM: &str = "blocks.*.ffn.norm";

struct Expansion<'a> {
    names: &'a Names,
    known: HashMap<&'a str, &'a Parameter>,
}

impl Expansion<'_> {
    /// Returns the parameters of a module in one block, with all its experts.
    fn module(&self, module: &Module, block: usize) -> Vec<Held> {
        let name = numbered(module.name, block);
        let table = |ours, shape: &dyn Fn(&Parameter) -> Vec<usize>| {
            let found = self.find(ours, block)?;
            let held =
                whole(&format!("{name}.weight"), &format!("{}.weight", module.name), part(found, None, Gain::Whole));
            Some(Held { shape: shape(found), ..held })
        };
        let held: Option<Held> = match &module.holds {
            Holds::Maps(ours, layout) => {
                let maps = |what| self.maps(module, &name, ours, *layout, block, what);
                return ["weight", "bias"].into_iter().flat_map(maps).collect();
            }
            Holds::BiasedRouter(ours) => return self.biased_router(module, &name, ours, block),
            Holds::Unbiased(ours) => return self.maps(module, &name, ours, Layout::Rows, block, "weight"),
            Holds::Experts(ours) => self.experts(module, &name, ours, block),
            Holds::ExpertColumns(ours, order) => {
                let maps = |what| self.expert_columns(module, &name, (ours, *order), block, what);
                return ["weight", "bias"].into_iter().filter_map(maps).collect();
            }
            Holds::Norm { ours, stored, biased } => {
                return self.norm(module, &name, ours, block, ((*stored, *biased), ["weight", "bias"]));
            }
            Holds::Gamma(ours) => {
                return self.norm(module, &name, ours, block, ((Gain::Whole, false), ["gamma", "beta"]));
            }
            Holds::Table(ours) => table(ours, &|found| found.shape.to_vec()),
            Holds::Positions(ours, offset) => {
                table(ours, &|found| vec![self.names.axes.positions.unwrap_or(found.shape[0]) + offset, found.shape[1]])
            }
            Holds::Padded(ours, rows) => table(ours, &|found| vec![found.shape[0] + rows, found.shape[1]]),
            Holds::Tokens(ours) => {
                let named = |number: usize| self.find(&format!("{ours}{number}"), block);
                let found: Vec<&Parameter> = (0..).map_while(named).collect();
                let parts: Vec<Part> = found.iter().map(|found| part(found, None, Gain::Whole)).collect();
                parts.first().map(|first| Held {
                    shape: vec![1, parts.len(), first.shape[1]],
                    axis: 1,
                    parts: parts.clone(),
                    ..whole(&name, module.name, first.clone())
                })
            }
            Holds::LayerScale(site) => self
                .find(&format!("{site}.scale"), block)
                .filter(|_| self.names.layer_scale)
                .map(|found| whole(&name, module.name, part(found, None, Gain::Whole))),
            Holds::RelativePositions(site) => self.relative_positions(module, &name, site, block),
            Holds::Bare(ours, axes) => self.find(ours, block).map(|found| {
                let held = whole(&name, module.name, part(found, None, Gain::Whole));
                let [rows, columns] = found.shape;
                let shape = match axes {
                    1 => vec![rows * columns],
                    2 if columns > 1 => vec![rows, columns],
                    2 => vec![rows],
                    _ => vec![1, rows, columns],
                };
                Held { shape, ..held }
            }),
        };
        held.into_iter().collect()
    }

    fn find(&self, ours: &str, block: usize) -> Option<&Parameter> {
        self.known.get(numbered(ours, block).as_str()).copied()
    }

    /// Returns the weights or biases of linear maps, one tensor per expert.
    fn maps(&self, module: &Module, name: &str, ours: &[&str], layout: Layout, block: usize, what: &str) -> Vec<Held> {
        let found: Option<Vec<&Parameter>> =
            ours.iter().map(|ours| self.find(&format!("{ours}.{what}"), block)).collect();
        let Some(found) = found else { return Vec::new() };
        let groups = match layout {
            Layout::Heads => self.names.n_kv_heads,
            Layout::QueryHeads => self.names.n_heads,
            Layout::StateHeads => self.names.n_state_heads,
            Layout::Shards => 4,
            Layout::Rows | Layout::Underscored | Layout::Columns | Layout::Frames | Layout::Taps | Layout::Patches => 1,
        };
        if found.iter().any(|found| !found.shape[0].is_multiple_of(groups)) {
            return Vec::new();
        }
        let outputs: usize = found.iter().map(|found| found.shape[0]).sum();
        let inputs = found[0].shape[1];
        let columns = layout == Layout::Columns && what == "weight";
        let shape = match (what, layout, self.names.axes.patch) {
            ("bias", _, _) => vec![outputs],
            (_, Layout::Columns, _) => vec![inputs, outputs],
            (_, Layout::Frames, _) => vec![outputs, inputs / 3, 3],
            (_, Layout::Taps, _) => vec![outputs, 1, inputs],
            (_, Layout::Patches, Some([channels, side])) => vec![outputs, channels, side, side],
            (
                _,
                Layout::Rows
                | Layout::Underscored
                | Layout::Heads
                | Layout::QueryHeads
                | Layout::StateHeads
                | Layout::Shards
                | Layout::Patches,
                _,
            ) => {
                vec![outputs, inputs]
            }
        };
        let joint = if layout == Layout::Underscored { '_' } else { '.' };
        let held = |expert: Option<usize>| Held {
            name: format!("{}{joint}{what}", expert.map_or(name.to_owned(), |expert| numbered(name, expert))),
            base: None,
            pattern: format!("{}{joint}{what}", module.name),
            shape: shape.clone(),
            axis: usize::from(columns),
            groups,
            parts: found.iter().map(|found| part(found, expert, Gain::Whole)).collect(),
        };
        let experts: Vec<Option<usize>> =
            if name.contains('*') { (0..found[0].copies).map(Some).collect() } else { vec![None] };
        experts.into_iter().map(held).collect()
    }

    /// Returns a table of relative positions, which is not a parameter of the network. It gets the learning rates of
    /// the queries of its block, or of the first block if all blocks share the table.
    fn relative_positions(&self, module: &Module, name: &str, site: &str, block: usize) -> Option<Held> {
        let Axes { relative_positions, shared_relative_positions, .. } = self.names.axes;
        let shape = if module.name.contains('*') { relative_positions } else { shared_relative_positions };
        let query = self.find("blocks.*.attention.heads.query.weight", block)?;
        let pattern = format!("{site}.relative_positions");
        let part = Part {
            parameters: vec![numbered(&pattern, block)],
            pattern,
            expert: None,
            shape: shape?,
            start: Start::Constant(0.0),
            offset: 0.0,
            learning_rates: query.learning_rates,
        };
        Some(whole(name, module.name, part))
    }

    /// Returns the weight of a router and its bias, which is not a parameter of the network.
    fn biased_router(&self, module: &Module, name: &str, ours: &str, block: usize) -> Vec<Held> {
        let Some(weight) = self.find(&format!("{ours}.weight"), block) else { return Vec::new() };
        let held = |what: &str, part| whole(&format!("{name}.{what}"), &format!("{}.{what}", module.name), part);
        let bias =
            Parameter { name: numbered(&format!("{ours}.bias"), block), shape: [weight.shape[0], 1], ..weight.clone() };
        [("weight", weight), ("bias", &bias)].map(|(what, found)| held(what, part(found, None, Gain::Whole))).into()
    }

    fn experts(&self, module: &Module, name: &str, ours: &[&str], block: usize) -> Option<Held> {
        let found: Option<Vec<&Parameter>> =
            ours.iter().map(|ours| self.find(&format!("{ours}.weight"), block)).collect();
        let found = found?;
        let rows = found.iter().map(|found| found.shape[0]).sum();
        let parts = found.iter().map(|found| part(found, None, Gain::Whole)).collect();
        let shape = vec![found[0].copies, rows, found[0].shape[1]];
        let (name, pattern) = (name.to_owned(), module.name.to_owned());
        Some(Held { name, base: None, pattern, shape, axis: 1, groups: 1, parts })
    }

    /// Returns the weights of all experts, [experts, in, out], or their biases, [experts, out].
    fn expert_columns(
        &self,
        module: &Module,
        name: &str,
        (ours, order): (&[&str], Columns),
        block: usize,
        what: &str,
    ) -> Option<Held> {
        let found: Option<Vec<&Parameter>> =
            ours.iter().map(|ours| self.find(&format!("{ours}.{what}"), block)).collect();
        let found = found?;
        let outputs = found.iter().map(|found| found.shape[0]).sum();
        let groups = match order {
            Columns::Sequential => 1,
            Columns::Alternating => found[0].shape[0],
        };
        let Parameter { copies, shape: [_, inputs], .. } = found[0];
        let (ending, shape) =
            if what == "bias" { ("_bias", vec![*copies, outputs]) } else { ("", vec![*copies, *inputs, outputs]) };
        Some(Held {
            name: format!("{name}{ending}"),
            base: None,
            pattern: format!("{}{ending}", module.name),
            axis: shape.len() - 1,
            shape,
            groups,
            parts: found.iter().map(|found| part(found, None, Gain::Whole)).collect(),
        })
    }

    fn norm(
        &self,
        module: &Module,
        name: &str,
        ours: &[&str],
        block: usize,
        ((stored, biased), called): ((Gain, bool), [&str; 2]),
    ) -> Vec<Held> {
        let ours: Vec<&str> = match (self.names.shares_norm, ours) {
            (true, [ATTENTION_NORM]) => vec![ATTENTION_NORM, FFN_NORM],
            (true, [FFN_NORM]) => Vec::new(),
            (_, ours) => ours.to_vec(),
        };
        let found: Vec<&Parameter> = ours.iter().filter_map(|ours| self.find(&format!("{ours}.gain"), block)).collect();
        let Some(first) = found.first() else { return Vec::new() };
        let parameters = found.iter().map(|parameter| parameter.name.clone()).collect();
        let gains = Part { parameters, ..part(first, None, stored) };
        let bias = norm_bias(first, &gains.parameters, biased || self.names.norm_biases);
        let held = |what: &str, part| whole(&format!("{name}.{what}"), &format!("{}.{what}", module.name), part);
        [Some(held(called[0], gains)), bias.map(|bias| held(called[1], bias))].into_iter().flatten().collect()
    }
}

/// Returns the pattern with its first `*` replaced by a number.
fn numbered(pattern: &str, number: usize) -> String {
    pattern.replacen('*', &number.to_string(), 1)
}

/// Returns a name in the network with `*` for its first number, which is that of the block.
fn starred(name: &str) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    if let Some(number) = parts.iter_mut().find(|part| part.parse::<usize>().is_ok()) {
        *number = "*";
    }
    parts.join(".")
}

/// Returns the number of the block that a parameter is in.
fn block(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("blocks.")?;
    rest.split('.').next()?.parse().ok()
}

/// Returns a tensor that holds one part.
fn whole(name: &str, pattern: &str, part: Part) -> Held {
    let shape = if part.shape[1] == 1 { vec![part.shape[0]] } else { part.shape.to_vec() };
    let (name, pattern) = (name.to_owned(), pattern.to_owned());
    Held { name, base: None, pattern, shape, axis: 0, groups: 1, parts: vec![part] }
}

fn part(parameter: &Parameter, expert: Option<usize>, stored: Gain) -> Part {
    let Parameter { name, shape, learning_rates, .. } = parameter.clone();
    let offset = match stored {
        Gain::Whole => 0.0,
        Gain::LessOne => 1.0,
    };
    let start = match parameter.values {
        Values::Drawn(init) => Start::Drawn(init),
        Values::Gains(norm) => Start::Constant(norm.gain - offset),
        Values::Scale(value) | Values::Skip(value) => Start::Constant(value),
        Values::LogRates(rates) => Start::LogRates(rates),
        Values::StepBiases(bias) => Start::StepBiases(bias),
    };
    Part { pattern: starred(&name), parameters: vec![name], expert, shape, start, offset, learning_rates }
}

/// Returns the bias of the norm with these `gains`. `names` has several entries if several norms of the network are one
/// in the library. `None` if the norm has no bias.
fn norm_bias(gains: &Parameter, names: &[String], norm_biases: bool) -> Option<Part> {
    let Values::Gains(norm) = gains.values else { return None };
    let bias_of = |gain: &String| format!("{}.bias", gain.strip_suffix(".gain").unwrap_or(gain));
    let parameters: Vec<String> = names.iter().map(bias_of).collect();
    let part = Part {
        pattern: starred(&parameters[0]),
        parameters,
        expert: None,
        shape: gains.shape,
        start: if norm.bias.is_zero() { Start::Constant(0.0) } else { Start::Drawn(norm.bias) },
        offset: 0.0,
        learning_rates: gains.learning_rates,
    };
    (norm_biases && norm.kind.has_biases()).then_some(part)
}
