//! The initialisation and the learning rate of every parameter, by name pattern.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use sigprop_stack::{Init, LearningRates, Named, Rates, Stack, StepBias};

use crate::huggingface::{Held, Part, Start};
use crate::report::SCHEMA_VERSION;

/// The initialisation of every parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    schema_version: u32,
    version: &'static str,
    model: String,
    scheme: Option<String>,
    /// The parameters by name, where `*` stands for the number of every block or expert.
    parameters: Vec<Planned>,
    /// Residual connections whose scales are not 1, except scales that are parameters.
    residual: Vec<Residual>,
}

/// One parameter, or all parameters whose names have one pattern.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Planned {
    name: String,
    /// The axis along which the parts follow one another. It is divided into `groups` groups of equal size, each of
    /// which contains an equal share of every part.
    axis: usize,
    groups: usize,
    parts: Vec<PlannedPart>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlannedPart {
    /// The name of the parameter in sigprop.
    parameter: String,
    /// The size of the part along the axis.
    size: usize,
    #[serde(flatten)]
    start: Distribution,
    /// The length to which the forward pass standardises the rows; `None` if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    standardised: Option<f64>,
    /// The factors on the learning rates under SGD and Adam.
    learning_rates: LearningRates,
}

/// The distribution of an entry; `std` is the standard deviation after truncation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "distribution", rename_all = "snake_case")]
enum Distribution {
    Constant {
        value: f64,
    },
    Normal {
        std: f64,
    },
    Uniform {
        std: f64,
        bounds: [f64; 2],
    },
    TruncatedNormal {
        std: f64,
        untruncated_std: f64,
        bounds: [f64; 2],
    },
    /// A multiple of a matrix with orthonormal rows or columns, whichever are fewer.
    Orthogonal {
        std: f64,
    },
    /// The logarithms of 1, 2, … along the last axis that has more than one entry.
    LogCount,
    /// The logarithm of a uniform variable.
    LogUniform {
        bounds: [f64; 2],
    },
    /// b for which softplus(b) is log-uniform.
    InverseSoftplus {
        bounds: [f64; 2],
    },
}

/// The scales of a residual connection x ↦ `skip`·x + Σ `branches`·f(x).
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Residual {
    site: String,
    skip: f64,
    branches: Vec<f64>,
}

impl Plan {
    /// The plan of a stack whose parameters are stored as `held`.
    pub fn new(stack: &Stack, scheme: Option<String>, held: &[Held]) -> Self {
        let mut groups: Vec<Vec<&Held>> = Vec::new();
        let mut places = HashMap::new();
        for held in held {
            let place = *places.entry(held.pattern.as_str()).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Vec::new());
            }
            groups[place].push(held);
        }
        let standardised = stack.standardised();
        let parameters = groups.iter().flat_map(|group| Planned::all(group, &standardised)).collect();
        Self {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            model: stack.name.clone(),
            scheme,
            parameters,
            residual: residual(stack, held),
        }
    }
}

impl Planned {
    /// Plans the parameters of one pattern: as one entry if they are equal in everything but their names, else one by
    /// one.
    fn all(group: &[&Held], standardised: &BTreeMap<&str, f64>) -> Vec<Self> {
        let of = |held: &Held, name: &str| {
            let Held { axis, groups, .. } = *held;
            let parts = held.parts.iter().map(|part| PlannedPart::of(part, standardised)).collect();
            Self { name: name.to_owned(), axis, groups, parts }
        };
        let pattern = of(group[0], &group[0].pattern);
        if group.iter().all(|held| of(held, &held.pattern) == pattern) {
            return vec![pattern];
        }
        group.iter().map(|held| of(held, &held.name)).collect()
    }
}

impl PlannedPart {
    fn of(part: &Part, standardised: &BTreeMap<&str, f64>) -> Self {
        let Part { pattern, shape, start, learning_rates, parameters, expert: _, offset: _ } = part;
        Self {
            parameter: pattern.clone(),
            size: shape[0],
            start: Distribution::of(*start),
            standardised: standardised.get(parameters[0].as_str()).copied(),
            learning_rates: *learning_rates,
        }
    }
}

impl Distribution {
    fn of(start: Start) -> Self {
        let init = match start {
            Start::Constant(value) | Start::StepBiases(StepBias::Value(value)) => return Self::Constant { value },
            Start::LogRates(Rates::Counted) => return Self::LogCount,
            Start::LogRates(Rates::Uniform { low, high }) => return Self::LogUniform { bounds: [low, high] },
            Start::StepBiases(StepBias::LogUniform { low, high }) => {
                return Self::InverseSoftplus { bounds: [low, high] };
            }
            Start::Drawn(init) => init,
        };
        match init {
            Init::Zero => Self::Constant { value: 0.0 },
            Init::Normal { std } => Self::Normal { std },
            Init::Uniform { bound } => Self::Uniform { std: init.std(), bounds: [-bound, bound] },
            Init::TruncatedNormal { std, cutoff } => {
                let bounds = [-cutoff * std, cutoff * std];
                Self::TruncatedNormal { std: init.std(), untruncated_std: std, bounds }
            }
            Init::Orthogonal { std } => Self::Orthogonal { std },
        }
    }
}

/// The residual connections with a scale other than 1. Scales that are parameters are left out.
fn residual(stack: &Stack, held: &[Held]) -> Vec<Residual> {
    let parameters: HashSet<&str> =
        held.iter().flat_map(|held| &held.parts).flat_map(|part| &part.parameters).map(String::as_str).collect();
    let mut found = Vec::new();
    stack.clone().change(|named| {
        let Named::Sum(site, sum) = named else { return };
        let Some((skip, branches)) = sum.branches.split_first().filter(|(skip, _)| skip.body.is_empty()) else {
            return;
        };
        let is_parameter = parameters.contains(format!("{site}.scale").as_str());
        let branches: Vec<f64> = branches.iter().map(|branch| if is_parameter { 1.0 } else { branch.scale }).collect();
        if std::iter::once(&skip.scale).chain(&branches).any(|scale| (scale - 1.0).abs() > 0.0) {
            found.push(Residual { site, skip: skip.scale, branches });
        }
    });
    found
}
