//! The findings of an inspection, about single tensors and about the whole checkpoint.

use super::buffers::is_fixed;
use super::copies::{Copies, copies};
use super::finding::{BlockSet, Finding, Problem, n_blocks, range, ranges, some};
use super::provenance::Provenance;
use super::sketch::{Repetition, RepetitionKind};
use super::{AbsentBlocks, Deviation, Group, Inspection, Reading, Run, Spread, Tails};
use crate::huggingface::Start;
use crate::numerals::{grouped, short};

impl Inspection {
    /// Returns all findings; `scheme` is the scheme that the network is compared with.
    pub fn findings(&self, scheme: &str) -> Vec<Finding> {
        let groups = Group::all(&self.readings);
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(groups.iter().filter_map(not_finite));
        findings.extend(copies(&self.readings).into_iter().map(|copies| copied(&copies, &groups)));
        findings.extend(groups.iter().filter_map(repeated));
        let blocks_of = |title: &str| groups.iter().find(|group| group.title() == title).map_or(0, n_blocks);
        findings.extend(Provenance::of(&self.readings).findings(scheme, blocks_of));
        findings.extend(groups.iter().filter_map(other_rows));
        findings.extend(groups.iter().filter_map(|group| deviating(group, scheme)));
        findings.extend(groups.iter().filter_map(|group| tailed(group, scheme)));
        let list = |problem, what: &str, names: &[String]| Finding {
            problem,
            tensors: names.to_vec(),
            blocks: Vec::new(),
            text: format!("{what}: {}", some(names)),
            value: names.len() as f64,
        };
        let missing = "not in the checkpoint, taken as the scheme draws them";
        findings.extend(self.absent_blocks.iter().map(AbsentBlocks::finding));
        let others = self.missing_elsewhere();
        findings.extend((!others.is_empty()).then(|| list(Problem::Missing, missing, &others)));
        let unknown = "not of the network, left out";
        findings.extend((!self.unknown.is_empty()).then(|| list(Problem::Unknown, unknown, &self.unknown)));
        findings
    }
}

fn not_finite(group: &Group) -> Option<Finding> {
    let count = group.spread.not_finite;
    if count == 0 {
        return None;
    }
    let affected =
        || group.readings.iter().map(|(reading, _)| *reading).filter(|reading| reading.spread.not_finite > 0);
    let of: u64 = affected().map(|reading| reading.spread.count + reading.spread.not_finite).sum();
    let place = BlockSet::of(affected(), group);
    let text = format!(
        "{}{place}: {} of {} entries are not finite (NaN or infinite)",
        group.title(),
        grouped(count),
        grouped(of)
    );
    Some(place.finding(Problem::NotFinite, group, text, count as f64))
}

fn copied(copies: &Copies, groups: &[Group]) -> Finding {
    let Copies { titles, blocks, is_over_blocks, correlation } = copies;
    let all = groups.iter().find(|group| group.title() == titles[0]).map_or(0, |group| n_blocks(group));
    let place = BlockSet { blocks: blocks.clone(), of: all };
    let how = if copies.is_equal() { "equal".to_owned() } else { format!("correlated ({})", short(*correlation)) };
    let text = if *is_over_blocks && blocks.len() > 1 {
        format!("blocks {} of {all} are {how} in {}", ranges(blocks), some(titles))
    } else if *is_over_blocks {
        format!("{}{place}: experts are {how}", some(titles))
    } else {
        format!("{}{place} are {how}", titles.join(" and "))
    };
    Finding {
        problem: Problem::Copies,
        tensors: titles.clone(),
        blocks: blocks.iter().copied().collect(),
        text,
        value: *correlation,
    }
}

/// Returns the finding about tensors with rows or columns that repeat, described for the block where the repetition is
/// strongest; `None` if there are none.
fn repeated(group: &Group) -> Option<Finding> {
    if is_fixed(group.pattern) {
        return None;
    }
    let repetition = |reading: &Reading| reading.fingerprint.as_ref()?.repetition;
    let affected: Vec<&Reading> =
        group.readings.iter().map(|(reading, _)| *reading).filter(|reading| repetition(reading).is_some()).collect();
    let strength = |found: &Repetition| match found.kind {
        RepetitionKind::Equal { copies, of } => 1.0 + copies as f64 / of as f64,
        RepetitionKind::Correlated { correlation, .. } => correlation.abs(),
    };
    let found = affected.iter().copied().filter_map(repetition);
    let Repetition { is_of_rows, kind } = found.max_by(|a, b| strength(a).total_cmp(&strength(b)))?;
    let lines = if is_of_rows { "rows" } else { "columns" };
    let (what, value) = match kind {
        RepetitionKind::Equal { copies, of } => {
            (format!("{copies} of {of} {lines} are copies of others"), copies as f64 / of as f64)
        }
        RepetitionKind::Correlated { blocks, pair: [a, b], correlation } => {
            let (a, b) = (a + 1, b + 1);
            let which = format!("{lines} in {blocks} equal parts, part {a} and part {b}");
            (format!("{which} have correlation {}", short(correlation)), correlation)
        }
    };
    let place = BlockSet::of(affected, group);
    let text = format!("{}{place}: {what}", group.title());
    Some(place.finding(Problem::Copies, group, text, value))
}

/// Returns the finding about rows of another size, such as `rows 2104 to 2111 have std 1, the others 0.02`; `None` if
/// there are none.
fn other_rows(group: &Group) -> Option<Finding> {
    let affected =
        |(reading, _): &(&Reading, _)| reading.rows.as_ref().is_some_and(|rows| rows.named().next().is_some());
    let (reading, _) = group.readings.iter().find(|reading| affected(reading))?;
    let rows = reading.rows.as_ref()?;
    let size = |spread: &Spread| short(spread.root_mean_square().unwrap_or_default());
    let run = |run: &Run| {
        let is_one = run.first == run.last;
        let rows = if is_one { format!("row {}", run.first) } else { format!("rows {} to {}", run.first, run.last) };
        match (run.is_zero(), is_one) {
            (true, true) => format!("{rows} is zeros"),
            (true, false) => format!("{rows} are zeros"),
            (false, true) => format!("{rows} has std {}", size(&run.spread)),
            (false, false) => format!("{rows} have std {}", size(&run.spread)),
        }
    };
    let runs: Vec<String> = rows.named().map(run).collect();
    let count: usize = rows.named().map(|run| run.last - run.first + 1).sum();
    let text = format!("{}: {}, the others {}", group.title(), runs.join(", "), size(&rows.rest));
    let place = BlockSet::of([*reading], group);
    Some(place.finding(Problem::Rows, group, text, count as f64))
}

fn deviating(group: &Group, scheme: &str) -> Option<Finding> {
    let deviating: Vec<(&Reading, Deviation)> = group.deviating().collect();
    let share = |(reading, deviation): &(&Reading, Deviation)| deviation.share(reading.judged());
    let worst = deviating.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (_, Deviation { start, ratio, z, .. }) = worst;
    let std = group.spread.std().map(short).unwrap_or_default();
    let said = match *start {
        Start::Drawn(_) => {
            let said = group.scheme_stds().map(range).unwrap_or_default();
            let ratio = ratio.map(|ratio| format!("×{}", short(ratio)));
            let numbers: Vec<String> = ratio.into_iter().chain(z.map(|z| format!("z {}", short(z)))).collect();
            let numbers = if numbers.is_empty() { String::new() } else { format!(" ({})", numbers.join(", ")) };
            let mean =
                if has_visible_mean(group) { format!(", mean {}", short(group.spread.mean)) } else { String::new() };
            format!("std {std}{mean}, scheme {scheme} says {said}{numbers}")
        }
        Start::LogRates(_) | Start::StepBiases(_) => {
            format!("mean {}, std {std}, outside the range that the model starts with", short(group.spread.mean))
        }
        Start::Constant(value) => {
            let mean = short(group.spread.mean);
            format!("mean {mean}, std {std}, the model starts with {}", short(value))
        }
    };
    let place = BlockSet::of(deviating.iter().map(|(reading, _)| *reading), group);
    let text = format!("{}{place}: {said}", group.title());
    Some(place.finding(Problem::Deviation, group, text, share(worst)))
}

fn tailed(group: &Group, scheme: &str) -> Option<Finding> {
    let tails = |reading: &Reading| reading.tails().filter(|tails| !tails.allowed);
    let affected: Vec<(&Reading, Tails)> =
        group.readings.iter().filter_map(|(reading, _)| Some((*reading, tails(reading)?))).collect();
    let distance = |tails: &Tails| (tails.kurtosis / tails.expected).ln().abs();
    let (_, Tails { kurtosis, expected, reach, .. }) =
        affected.iter().max_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))?;
    let place = BlockSet::of(affected.iter().map(|(reading, _)| *reading), group);
    let text = format!(
        "{}{place}: kurtosis {}, largest entry {} standard deviations; the distribution of scheme {scheme} has a \
         kurtosis of {}",
        group.title(),
        short(*kurtosis),
        short(*reach),
        short(*expected)
    );
    Some(place.finding(Problem::Tails, group, text, *kurtosis))
}

/// Returns true if the mean is large enough to be reported.
fn has_visible_mean(group: &Group) -> bool {
    /// The smallest mean that is reported, in standard deviations.
    const VISIBLE: f64 = 0.05;
    group.spread.std().is_some_and(|std| group.spread.mean.abs() > VISIBLE * std)
}
