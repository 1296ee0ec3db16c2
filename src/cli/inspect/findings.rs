//! Findings on a terminal.

use std::io::{self, Write};

use crate::{
    cli::prose::write_indented,
    inspect::{Finding, Problem},
};

/// The number of deviations that are listed if the checkpoint is not an initialisation of the network.
const SHOWN: usize = 3;

/// Writes all findings. If the checkpoint is not an initialisation of the network, only the largest deviations are
/// listed.
pub(super) fn write_findings(findings: &[Finding], is_initialisation: bool, out: &mut dyn Write) -> io::Result<()> {
    let is_of_size = |finding: &&Finding| matches!(finding.problem, Problem::Deviation | Problem::Tails);
    let (mut of_size, others): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(is_of_size);
    let mut left_out = 0;
    if !is_initialisation && of_size.len() > SHOWN {
        of_size.sort_by(|a, b| a.problem.cmp(&b.problem).then(b.value.total_cmp(&a.value)));
        left_out = of_size.len() - SHOWN;
        of_size.truncate(SHOWN);
    }
    let (graver, lighter): (Vec<&Finding>, Vec<&Finding>) =
        others.into_iter().partition(|finding| finding.problem < Problem::Deviation);
    for finding in graver.into_iter().chain(of_size).chain(lighter) {
        let mark = if finding.problem == Problem::NotFinite { "  !! " } else { "   ! " };
        write_indented(mark, 5, &finding.text, out)?;
    }
    if left_out > 0 {
        writeln!(out, "   ! and {left_out} more findings about sizes and tails (--format json lists all)")?;
    }
    Ok(())
}
