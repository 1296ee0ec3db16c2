//! The judgement of a checkpoint: the verdict on its prediction, if the prediction can be trusted.

use super::{Finding, Inspection, Omission, Problem};
use crate::caveat::{Caveat, Condition};
use crate::numerals::grouped;
use crate::verdict::{Grade, Verdict};

/// The verdict on a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The grade of the network; `None` if there is no prediction that can be trusted.
    pub grade: Option<Grade>,
    /// The grade and its reasons in a few words.
    pub headline: String,
}

impl Judgement {
    /// Judges a checkpoint by its findings. `predicted` has the verdict on the prediction and the properties that the
    /// prediction leaves out; `None` if there is no prediction.
    pub fn of(findings: &[Finding], inspection: &Inspection, predicted: Option<(&Verdict, &[Omission])>) -> Self {
        let not_finite: Vec<&Finding> = of_problem(findings, Problem::NotFinite).collect();
        match predicted {
            _ if !not_finite.is_empty() => {
                let tensors = if not_finite.len() == 1 { "tensor" } else { "tensors" };
                let reasons = format!("entries of {} {tensors} are not finite", not_finite.len());
                let grade = Grade::NotTrainable;
                Self { grade: Some(grade), headline: format!("{}: {reasons}", grade.words()) }
            }
            Some((verdict, omissions)) => match doubt(findings, inspection, omissions) {
                Some(reason) if verdict.grade < Grade::NotTrainable => {
                    Self { grade: None, headline: format!("cannot be trusted: {reason}") }
                }
                Some(_) | None => Self { grade: Some(verdict.grade), headline: verdict.headline.clone() },
            },
            None => Self { grade: None, headline: without_network(findings) },
        }
    }
}

/// Returns the headline if nothing is predicted and all entries are finite.
fn without_network(findings: &[Finding]) -> String {
    let copies = match of_problem(findings, Problem::Copies).count() {
        0 => "no tensors are copies of each other".to_owned(),
        1 => "one finding says that tensors are copies of each other".to_owned(),
        n => format!("{n} findings say that tensors are copies of each other"),
    };
    format!("not judged as a network: all entries are finite, {copies}")
}

/// Returns the reason why the prediction may be for a network other than that of the checkpoint; `None` if there is no
/// doubt.
fn doubt(findings: &[Finding], inspection: &Inspection, omissions: &[Omission]) -> Option<String> {
    /// The share of the network's entries that may be missing and taken from the scheme.
    const MISSING: f64 = 0.1;
    let missing = inspection.coverage.missing_share();
    if of_problem(findings, Problem::Copies).next().is_some() {
        Some("weights depend on each other, the prediction takes them as independent".to_owned())
    } else if omissions.iter().any(Omission::is_grave) {
        Some("the prediction leaves out a part of the checkpoint, which its caveats name".to_owned())
    } else if let Some(blocks) = inspection.absent_blocks.first() {
        Some(format!("the checkpoint is without {}, the prediction has the scheme's", blocks.place()))
    } else if missing > MISSING {
        Some(format!(
            "{:.0} % of the network's entries are not in the checkpoint, the prediction has the scheme's",
            100.0 * missing
        ))
    } else {
        None
    }
}

/// Returns the findings of one kind.
pub fn of_problem(findings: &[Finding], problem: Problem) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(move |finding| finding.problem == problem)
}

/// Returns the caveats that findings imply for the prediction with the measured sizes of weights.
pub fn caveats(findings: &[Finding], inspection: &Inspection) -> Vec<Caveat> {
    let copies: Vec<&Finding> = of_problem(findings, Problem::Copies).collect();
    let dependent =
        copies.first().map(|first| Caveat::of(&first.tensors[0], copies.len(), Condition::DependentWeights));
    dependent.into_iter().chain(heavy_tails(inspection)).collect()
}

/// Returns the caveat about linear maps whose outputs are not Gaussian. They are Gaussian if the excess kurtosis of the
/// weights is small compared with the number of weights per output.
fn heavy_tails(inspection: &Inspection) -> Option<Caveat> {
    /// The excess kurtosis of an output above which it is reported.
    const VISIBLE: f64 = 0.1;
    let excess = |reading: &&super::Reading| {
        let part = reading.part.as_ref()?;
        let [_, fan_in] = part.shape;
        let kurtosis = reading.spread.kurtosis().filter(|_| fan_in > 1 && reading.has_other_tails())?;
        Some((3.0 * (kurtosis - 3.0) / fan_in as f64, part.pattern.clone(), kurtosis)).filter(|found| found.0 > VISIBLE)
    };
    let found: Vec<(f64, String, f64)> = inspection.readings.iter().filter_map(|reading| excess(&reading)).collect();
    let (excess, site, kurtosis) = found.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Caveat::of(site, found.len(), Condition::HeavyTails(*kurtosis, *excess)))
}

/// Returns the numbers of found parameters and of entries as text, such as `148 of 148 parameters, 124 439 808
/// entries`.
pub fn coverage(inspection: &Inspection) -> String {
    let super::Coverage { parameters, found, entries, .. } = inspection.coverage;
    format!("{found} of {parameters} parameters, {} entries", grouped(entries))
}
