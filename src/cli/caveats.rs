//! Caveats on a terminal, and the list of their kinds.

use std::io::{self, Write};

use crate::{Caveat, CaveatKind};

use super::console::Console;
use super::prose::write_indented;

/// The number of caveats that are shown without -v.
const FEW: usize = 3;

/// Writes the caveats: the prediction is of a slightly different network than was asked for, or it uses a rule outside
/// its range. Without -v only the first few are shown.
pub(crate) fn write_caveats(caveats: &[Caveat], console: Console, out: &mut dyn Write) -> io::Result<()> {
    let shown = if console.is_verbose() { caveats.len() } else { caveats.len().min(FEW) };
    for caveat in &caveats[..shown] {
        let Caveat { site, sites, .. } = caveat;
        let others = if *sites > 1 { format!(" and {} more", sites - 1) } else { String::new() };
        let (text, advice) = (caveat.text(), caveat.kind().advice);
        write_indented("Caveat: ", 8, &format!("{site}{others}: {text}. {advice}"), out)?;
    }
    match caveats.len() - shown {
        0 => Ok(()),
        rest => writeln!(out, "Caveats: {rest} more with -v."),
    }
}

/// Writes all kinds of caveats: where they apply, which numbers are less certain and by how much, and the advice.
pub(crate) fn explain_caveats(out: &mut dyn Write) -> io::Result<()> {
    for CaveatKind { name, quantity, size, about, advice } in CaveatKind::ALL {
        writeln!(out, "{name}")?;
        write_indented("  applies where ", 16, about, out)?;
        write_indented("  less certain  ", 16, quantity, out)?;
        if !size.is_empty() {
            write_indented("  size          ", 16, size, out)?;
        }
        write_indented("  advice        ", 16, advice, out)?;
    }
    Ok(())
}
