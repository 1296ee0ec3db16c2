//! Gates on a checkpoint: the exit status is 1 if it does not pass them.

use crate::{
    inspect::{Finding, Problem},
    verdict::Failure,
};
use clap::{Args, ValueEnum, builder::PossibleValue};

use super::Compared;
use crate::cli::{Outcome, console::Console, parse};

/// Gates of `inspect`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Gates")]
pub(super) struct Gate {
    /// Exit with status 1 if any of these is found. All but not-finite, copies and rows need a network to compare with,
    /// a config.json next to the checkpoint or --config: without one the exit status is 2.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    fail_on: Vec<FailOn>,

    /// Exit with status 1 if the standard deviation of a tensor, or its mean in standard deviations, differs from the
    /// scheme's by more than this share: 5%, 0.05.
    #[arg(long, value_name = "SHARE", value_parser = parse::error, allow_negative_numbers = true)]
    max_deviation: Option<f64>,
}

/// A reason to fail an inspection: a problem of the checkpoint itself, or a failure that is predicted with its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailOn {
    Problem(Problem),
    Failure(Failure),
}

impl ValueEnum for FailOn {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Problem(Problem::NotFinite),
            Self::Problem(Problem::Copies),
            Self::Problem(Problem::Fresh),
            Self::Problem(Problem::Rows),
            Self::Problem(Problem::Deviation),
            Self::Problem(Problem::Tails),
            Self::Problem(Problem::Missing),
            Self::Problem(Problem::Unknown),
            Self::Failure(Failure::Explosion),
            Self::Failure(Failure::Vanishing),
            Self::Failure(Failure::Collapse),
            Self::Failure(Failure::EntropyCollapse),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Problem(problem) => problem.meaning(),
            Self::Failure(failure) => failure.meaning(),
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl FailOn {
    /// Returns true if the gate needs the network that the checkpoint should be. Adapters are compared with their own
    /// initialisation.
    fn needs_network(self, is_adapter: bool) -> bool {
        match self {
            Self::Problem(Problem::NotFinite | Problem::Copies | Problem::Rows) => false,
            Self::Problem(Problem::Deviation | Problem::Tails) => !is_adapter,
            Self::Problem(Problem::Fresh | Problem::Missing | Problem::Unknown) | Self::Failure(_) => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Problem(problem) => problem.name(),
            Self::Failure(failure) => failure.name(),
        }
    }
}

impl Gate {
    /// Returns the first gate that needs a network to compare the checkpoint with.
    pub(super) fn needing_network(&self, is_adapter: bool) -> Option<String> {
        let fail_on = self.fail_on.iter().find(|gate| gate.needs_network(is_adapter));
        let deviation = self.max_deviation.filter(|_| !is_adapter);
        fail_on.map(|gate| format!("--fail-on {}", gate.name())).or(deviation.map(|_| "--max-deviation".to_owned()))
    }

    /// Returns the outcome of the gates. The reasons of failures go to stderr.
    pub(super) fn outcome(&self, compared: &Compared, console: Console) -> Outcome {
        let findings = compared.findings.iter().filter(|finding| self.is_failing(finding));
        let failures = compared.measured.iter().flat_map(|measured| measured.verdict.failures());
        let failures = failures.filter(|(failure, _)| self.fail_on.contains(&FailOn::Failure(*failure)));
        let reasons: Vec<&str> =
            findings.map(|finding| &*finding.text).chain(failures.map(|(_, finding)| &*finding.text)).collect();
        for reason in &reasons {
            console.failed(reason);
        }
        if reasons.is_empty() { Outcome::Done } else { Outcome::GateFailed }
    }

    fn is_failing(&self, finding: &Finding) -> bool {
        let is_beyond = |limit: f64| finding.problem == Problem::Deviation && finding.value > limit;
        self.fail_on.contains(&FailOn::Problem(finding.problem)) || self.max_deviation.is_some_and(is_beyond)
    }
}
