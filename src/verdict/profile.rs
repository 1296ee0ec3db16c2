//! The curve that is judged: one stream from its input to its last block.

use sigprop_stack::{BlockName, SiteRow, SiteTable};

/// The sites of one stream from the input of block 0 to the output of the last block.
pub(crate) struct Profile<'t> {
    pub(crate) stream: Option<&'t str>,
    pub(crate) rows: Vec<&'t SiteRow>,
}

impl<'t> Profile<'t> {
    /// Returns one profile per stream. A stream begins where the index of the layer does not increase.
    pub(crate) fn all(table: &'t SiteTable) -> Vec<Self> {
        let rows: Vec<&SiteRow> = table.stream_sites().collect();
        rows.chunk_by(|before, after| before.layer < after.layer).map(Self::of).collect()
    }

    fn of(rows: &[&'t SiteRow]) -> Self {
        let is_block = |row: &SiteRow| BlockName::is_block(&row.site);
        let named = rows.iter().any(|row| is_block(row));
        let kept = rows.iter().filter(|row| !named || row.layer < 0 || is_block(row)).copied().collect();
        let stream = rows.first().and_then(|row| row.site.split_once('.')).map(|(stream, _)| stream);
        Self { stream, rows: kept }
    }
}
