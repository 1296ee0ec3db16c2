//! The data that the scripts of a page draw.

use serde::Serialize;
use sigprop_stack::Number;

use crate::report::{
    Field, Rows,
    chart::{Axis, Chart, Curve, MAX_BANDS, Mark, Panel, Point, Style},
};

/// A table of decimal text, as in CSV.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    title: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table of the rows, without the columns that are blank in every row.
    pub(super) fn new(title: &'static str, Rows { columns, rows }: &Rows) -> Self {
        let text: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(Field::text).collect()).collect();
        let told: Vec<usize> =
            (0..columns.len()).filter(|column| text.iter().any(|row| !row[*column].is_empty())).collect();
        Self {
            title,
            columns: told.iter().map(|column| columns[*column].to_owned()).collect(),
            rows: text.iter().map(|row| told.iter().map(|column| row[*column].clone()).collect()).collect(),
        }
    }

    /// Adds a first column called `column`, which holds `label` in every row.
    pub(super) fn labelled(mut self, column: &str, label: &str) -> Self {
        self.columns.insert(0, column.to_owned());
        self.rows.iter_mut().for_each(|row| row.insert(0, label.to_owned()));
        self
    }

    /// Joins tables one below the other, with the columns of the widest. Returns `None` if there is no table.
    pub(super) fn joined(tables: &[Self]) -> Option<Self> {
        let title = tables.first()?.title;
        let widest = tables.iter().max_by_key(|table| table.columns.len())?;
        let columns = widest.columns.clone();
        let rows = tables.iter().flat_map(|table| {
            let places = columns.iter().map(|name| table.columns.iter().position(|column| column == name));
            let places: Vec<Option<usize>> = places.collect();
            let cells = move |row: &Vec<String>| -> Vec<String> {
                places.iter().map(|place| place.map_or(String::new(), |place| row[place].clone())).collect()
            };
            table.rows.iter().map(cells)
        });
        Some(Self { title, rows: rows.collect(), columns })
    }
}

/// The document that the scripts of a page read.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    chart: ChartData,
    tables: &'a [Table],
}

#[derive(Serialize)]
struct ChartData {
    depth: f64,
    max_bands: usize,
    styles: Vec<StyleData>,
    panels: Vec<PanelData>,
}

#[derive(Serialize)]
struct StyleData {
    name: String,
    colour: &'static str,
    dashes: &'static str,
    outline: &'static str,
}

/// A panel. Its numbers are coordinates on its axis (log₁₀ if the axis is logarithmic), rounded to more digits than a
/// reader can see.
#[derive(Serialize)]
struct PanelData {
    title: &'static str,
    log: bool,
    low: f64,
    high: f64,
    curves: Vec<CurveData>,
}

#[derive(Serialize)]
struct CurveData {
    vertices: Vec<(f64, f64)>,
    /// The band: depth, lower end, upper end.
    band: Vec<(f64, f64, f64)>,
    /// The observed points: depth, number, lower and upper end of the bar. An end is null if there is no bar, or if the
    /// axis is logarithmic and the end is not positive.
    points: Vec<(f64, f64, Option<f64>, Option<f64>)>,
    marks: Vec<MarkData>,
}

#[derive(Serialize)]
struct MarkData {
    depth: f64,
    value: f64,
    label: String,
}

impl<'a> Data<'a> {
    pub(super) fn new(chart: &Chart, tables: &'a [Table]) -> Self {
        let styles = chart.names.iter().enumerate().map(|(index, name)| {
            let style = Style(index);
            let (colour, dashes, outline) = (style.colour(), style.dashes(), style.outline());
            StyleData { name: name.clone(), colour, dashes, outline }
        });
        let chart = ChartData {
            depth: chart.blocks().max(1.0),
            max_bands: MAX_BANDS,
            styles: styles.collect(),
            panels: chart.panels.iter().map(PanelData::of).collect(),
        };
        Self { chart, tables }
    }
}

impl PanelData {
    fn of(panel: &Panel) -> Self {
        let axis = panel.axis();
        let curves = panel.curves.iter().map(|curve| CurveData::of(curve, &axis)).collect();
        Self { title: panel.title, log: axis.is_log, low: axis.low, high: axis.high, curves }
    }
}

impl CurveData {
    fn of(curve: &Curve, axis: &Axis) -> Self {
        let at = |value: Number| Some(rounded(axis.coordinate(value)?, axis.is_log));
        let vertices = curve.vertices.iter().filter_map(|(depth, value)| Some((*depth, at(*value)?)));
        let band = curve.band.iter().filter_map(|(depth, [low, high])| Some((*depth, at(*low)?, at(*high)?)));
        let points = curve.points.iter().filter_map(|Point { depth, value, bar }| {
            let [low, high] = [0, 1].map(|end| bar.and_then(|bar| at(bar[end])));
            Some((*depth, at(*value)?, low, high))
        });
        let marks = curve.marks.iter().filter_map(|Mark { depth, value, label }| {
            Some(MarkData { depth: *depth, value: at(*value)?, label: label.clone() })
        });
        Self { vertices: vertices.collect(), band: band.collect(), points: points.collect(), marks: marks.collect() }
    }
}

/// Rounds to six decimals of a logarithm or nine digits of another number: a cursor shows four digits, and no screen is
/// finer.
fn rounded(coordinate: f64, is_log: bool) -> f64 {
    let text = if is_log { format!("{coordinate:.6}") } else { format!("{coordinate:.8e}") };
    text.parse().expect("a number")
}
