//! Properties of a checkpoint that the network with its measured weights leaves out.
//!
//! # Formula
//!
//! A stack samples weights of mean zero. Let n numbers have the mean m and the standard deviation s, with |m| √n > 5 s.
//! Then the share of the predicted quantity that the mean changes is, to leading order,
//!
//! ```text
//! linear map          fan_in m²/s²          of E y², where all of the input is mean: m² (Σ x)² for s² Σ x²
//! table               m²/(m² + s²)          of the correlation of two tokens
//! bias                m²/E y²               of E y², common to all features: what a LayerNorm behind it takes off
//! ```
//!
//! where E y² of a linear map is that of inputs of second moment 1.
//!
//! Gains are independent between features, and so are the products of the norms that a skip connection passes. If k
//! norms have κ = E g⁴/(E g²)², width/κ^k features carry the squares of the product. The effect is smaller where
//! branches mix features. Below one feature, the mean over networks is the mean of rare ones.

use std::collections::{HashMap, HashSet};

use sigprop_stack::{Component, Init, Named, Node, Op, Source, Stack, Stream};

use super::buffers::is_buffer;
use super::{Inspection, Reading, Spread, starred};
use crate::caveat::{Caveat, Condition};

/// Relative changes of a prediction below this are not reported.
const VISIBLE: f64 = 0.05;
/// Means within this many standard errors of zero are taken to be due to chance.
const BEYOND: f64 = 5.0;

/// A property of one tensor, or of the same tensor in several blocks, that a prediction with the measured sizes of
/// weights leaves out.
#[derive(Clone, Debug, PartialEq)]
pub struct Omission {
    /// Name of the tensor in the checkpoint, with `*` for numbers.
    pub pattern: String,
    /// The tensors, in the order of the checkpoint.
    pub tensors: Vec<String>,
    /// The property that is left out.
    pub kind: OmissionKind,
}

/// The kinds of properties that are left out.
#[derive(Clone, Debug, PartialEq)]
pub enum OmissionKind {
    /// A parameter is stored in this type, which is not read. The prediction uses its initialisation instead.
    Type(String),
    /// A tensor in the blocks has the name of no parameter of the network. The number is √E w² of the largest such
    /// tensor.
    Place(f64),
    /// The entries of a tensor have a mean that is not zero. The number is the relative change of the prediction that
    /// the mean may cause, for the tensor where it is largest.
    Mean(f64),
    /// Gains vary so much between features that less than one feature carries the gradient. The number counts
    /// the features that carry it.
    Gains(f64),
}

impl Omission {
    /// Returns true if the prediction, which leaves this property out, describes another network.
    pub fn is_grave(&self) -> bool {
        match self.kind {
            OmissionKind::Type(_) | OmissionKind::Place(_) | OmissionKind::Gains(_) => true,
            OmissionKind::Mean(share) => share > 0.5,
        }
    }

    /// Returns the caveat for the prediction.
    pub fn caveat(&self) -> Caveat {
        let condition = match &self.kind {
            OmissionKind::Type(dtype) => Condition::UnreadType(dtype.clone()),
            OmissionKind::Place(size) => Condition::NoPlace(*size),
            OmissionKind::Mean(share) => Condition::MeanOfWeights(*share),
            OmissionKind::Gains(features) => Condition::UnevenGains(*features),
        };
        Caveat::of(&self.tensors[0], self.tensors.len(), condition)
    }
}

/// Returns the properties of a checkpoint that a prediction of `stack` leaves out. The measured sizes of weights must
/// have been written into `stack`.
pub(super) fn omissions(stack: &mut Stack, inspection: &Inspection) -> Vec<Omission> {
    let unread = unread(inspection).map(|(name, dtype)| (name, starred(name), OmissionKind::Type(dtype.to_owned())));
    let places = places(stack);
    let without_place = without_place(inspection, &places)
        .map(|(reading, size)| (reading.tensor.as_str(), reading.pattern.clone(), OmissionKind::Place(size)));
    let (roles, several) = (roles(stack), stack.streams.len() > 1);
    let means = inspection.readings.iter().filter_map(|reading| {
        let share = share_of_mean(reading, &roles).filter(|share| *share > VISIBLE)?;
        Some((reading.tensor.as_str(), reading.pattern.clone(), OmissionKind::Mean(share)))
    });
    let mut found: Vec<Omission> = Vec::new();
    for (tensor, pattern, kind) in unread.chain(without_place).chain(means) {
        let alike = |omission: &&mut Omission| omission.pattern == pattern && omission.kind.is_like(&kind);
        match found.iter_mut().find(alike) {
            Some(omission) => omission.add(tensor, kind),
            None => found.push(Omission { pattern, tensors: vec![tensor.to_owned()], kind }),
        }
    }
    found.extend(stack.streams.iter().filter_map(|stream| uneven_gains(stream, several, &inspection.readings)));
    found
}

/// Returns the omission for the gains of the norms along the skip connections of a stream, if less than one feature
/// carries the product of all these gains; otherwise `None`.
fn uneven_gains(stream: &Stream, several: bool, readings: &[Reading]) -> Option<Omission> {
    /// The least κ = E g⁴/(E g²)² of gains g that are counted; gains with a standard deviation of half their mean have
    /// less.
    const LEAST: f64 = 2.0;
    let mut norms = HashSet::new();
    let path = if several { format!("{}.", stream.name) } else { String::new() };
    norms_of_stream(&stream.body, &path, &mut norms);
    let uneven: Vec<(&Reading, f64)> = readings
        .iter()
        .filter_map(|reading| {
            let part = reading.part.as_ref().filter(|part| norms.contains(&part.parameters[0]))?;
            Some((reading, fourth_moment(&reading.spread, part.offset)?))
        })
        .filter(|(_, fourth)| *fourth > LEAST)
        .collect();
    let features = stream.source.width() as f64 / uneven.iter().map(|(_, fourth)| fourth).product::<f64>();
    let (first, _) = uneven.first().filter(|_| features < 1.0)?;
    let tensors = uneven.iter().map(|(reading, _)| reading.tensor.clone()).collect();
    Some(Omission { pattern: first.pattern.clone(), tensors, kind: OmissionKind::Gains(features) })
}

/// Collects the names of the gains that are in no branch.
fn norms_of_stream(body: &[Node], path: &str, found: &mut HashSet<String>) {
    for node in body {
        let site = node.owner(&format!("{path}{}", node.name));
        match &node.op {
            Op::Apply(Component::Norm(_)) => drop(found.insert(format!("{site}.gain"))),
            Op::Chain(body) => norms_of_stream(body, &format!("{site}."), found),
            _ => {}
        }
    }
}

/// Returns E g⁴/(E g²)² of gains g that are stored as g − `offset`. Their odd central moments are taken to be zero.
fn fourth_moment(spread: &Spread, offset: f64) -> Option<f64> {
    let [mean, variance] = [spread.mean + offset, spread.std()?].map(|x| x * x);
    let second = mean + variance;
    let fourth = mean * mean + 6.0 * mean * variance + spread.kurtosis().unwrap_or_default() * variance * variance;
    (second > 0.0).then(|| fourth / (second * second))
}

impl Omission {
    fn add(&mut self, tensor: &str, kind: OmissionKind) {
        self.tensors.push(tensor.to_owned());
        if self.kind.size() < kind.size() {
            self.kind = kind;
        }
    }
}

impl OmissionKind {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::Place(_), Self::Place(_)) | (Self::Mean(_), Self::Mean(_)) => true,
            (Self::Type(_) | Self::Place(_) | Self::Mean(_) | Self::Gains(_), _) => false,
        }
    }

    fn size(&self) -> f64 {
        match self {
            Self::Type(_) => 0.0,
            Self::Place(size) | Self::Mean(size) | Self::Gains(size) => *size,
        }
    }
}

/// Returns the tensors of the network that were not read, with their types.
fn unread(inspection: &Inspection) -> impl Iterator<Item = (&str, &str)> {
    let unknown: HashSet<&str> = inspection.unknown.iter().map(String::as_str).collect();
    let known = move |name: &str| !unknown.contains(name);
    let unread = inspection.unread.iter().map(|(name, dtype)| (name.as_str(), dtype.as_str()));
    unread.filter(move |(name, _)| known(name))
}

/// Returns the names of all parameters of a stack.
fn places(stack: &mut Stack) -> HashSet<String> {
    let mut places = HashSet::new();
    stack.change(|named| match named {
        Named::Tensor(tensor) => places.extend([tensor.name.clone()]),
        Named::Norm(name, _) => places.extend([bias_of(&name), name]),
        Named::Sum(site, _) => places.extend([format!("{site}.scale")]),
        Named::Attention(_) => {}
    });
    places
}

/// Returns the tensors of the checkpoint that are no parameter of the network but are in a block with parameters of the
/// network, and √E w² of each. Biases and tables of zeros have no effect and are left out.
fn without_place<'i>(
    inspection: &'i Inspection,
    places: &HashSet<String>,
) -> impl Iterator<Item = (&'i Reading, f64)> + use<'i> {
    let (known, unknown): (Vec<&Reading>, Vec<&Reading>) = inspection.readings.iter().partition(|reading| {
        reading.part.as_ref().is_some_and(|part| part.parameters.iter().any(|name| places.contains(name)))
    });
    let blocks: HashSet<&str> = known.into_iter().filter_map(|reading| block(&reading.pattern)).collect();
    unknown.into_iter().filter_map(move |reading| {
        let size = reading.spread.root_mean_square()?;
        let in_block = block(&reading.pattern).is_some_and(|block| blocks.contains(block));
        let adds = size > 0.0 || reading.part.is_none() && !reading.pattern.ends_with("bias");
        (in_block && !is_buffer(&reading.pattern) && adds).then_some((reading, size))
    })
}

/// Returns the text before the number of the block in a pattern; `None` outside of blocks.
pub(super) fn block(pattern: &str) -> Option<&str> {
    pattern.split_once(".*.").map(|(block, _)| block)
}

/// The role of a parameter, which decides the effect of its mean.
enum Role {
    Map {
        fan_in: f64,
    },
    Table,
    Bias {
        /// E y² of the output y of the map, bias included, for inputs of second moment 1.
        second: f64,
    },
}

/// Returns the roles of the parameters whose means have a visible effect, by name.
fn roles(stack: &mut Stack) -> HashMap<String, Role> {
    let mut roles = HashMap::new();
    stack.change(|named| {
        if let Named::Norm(name, norm) = named {
            let second = norm.gain * norm.gain + norm.bias.variance();
            roles.insert(bias_of(&name), Role::Bias { second });
        }
    });
    for stream in &stack.streams {
        if let Source::Embedding(embedding) = &stream.source {
            let tables = embedding.terms.iter().filter_map(|term| term.table());
            roles.extend(tables.map(|table| (table.name.clone(), Role::Table)));
        }
        collect(&stream.body, &mut roles);
    }
    roles
}

fn collect(body: &[Node], roles: &mut HashMap<String, Role>) {
    for node in body {
        if let Op::Apply(component) = &node.op {
            let (fan_in, weight, bias) = match component {
                Component::Linear(linear) => (linear.fan_in, &linear.weight, linear.bias.as_ref()),
                Component::Convolution(conv) => (conv.window(), &conv.weight, conv.bias.as_ref()),
                _ => continue,
            };
            let fan_in = fan_in as f64;
            let second = |init: Init| fan_in * weight.init.variance() + init.variance();
            roles.extend(bias.map(|bias| (bias.name.clone(), Role::Bias { second: second(bias.init) })));
            roles.insert(weight.name.clone(), Role::Map { fan_in });
        }
        node.op.bodies().for_each(|body| collect(body, roles));
    }
}

/// Returns the relative change of the prediction that the mean of a parameter may cause; `None` if the mean may be due
/// to chance.
fn share_of_mean(reading: &Reading, roles: &HashMap<String, Role>) -> Option<f64> {
    let part = reading.part.as_ref()?;
    let (mean, std) = (reading.spread.mean, reading.spread.std()?);
    let drawn = mean.abs() * (reading.spread.count as f64).sqrt() <= BEYOND * std;
    let square = mean * mean;
    let share = match roles.get(&part.parameters[0])? {
        Role::Map { fan_in } => fan_in * square / (std * std),
        Role::Table => square / (square + std * std),
        Role::Bias { second } => square / second,
    };
    (!drawn).then_some(share)
}

/// Returns the name of the biases of the norm whose gains have this name.
pub(super) fn bias_of(gain: &str) -> String {
    [gain.strip_suffix("gain").unwrap_or(gain), "bias"].concat()
}
