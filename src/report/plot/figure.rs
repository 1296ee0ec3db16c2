//! Panels side by side under a title, above a legend.

use svg::{
    Document, Node,
    node::element::{Group, Rectangle},
};

use super::{
    outline::PlotPoint,
    panel::{HEIGHT, WIDTH, cross, draw, label, rule, stride},
};
use crate::report::chart::{Axis, Chart, Panel, Style};

/// Number of panels in a row.
const COLUMNS: usize = 2;
/// The distances between frames in pixels, across and down; the space to the left of a frame holds its numbers.
pub(super) const MARGIN: PlotPoint = (80.0, 74.0);
/// The space above the first frame.
pub(super) const TOP: f64 = 72.0;
const LEGEND_LINE: f64 = 20.0;
pub(super) const FONT: f64 = 12.0;
/// Average width of a letter over the size of its font, estimated rather too large.
const LETTER: f64 = 0.57;
const TOTAL_WIDTH: f64 = COLUMNS as f64 * (WIDTH + MARGIN.0) + 20.0;

/// A symbol of the legend: a short piece of the drawing that its text explains.
pub(super) enum Sign {
    /// A curve, with a marker if the flag is true.
    Curve(Style, bool),
    Band(Style),
    /// An observed number, with an error bar if the flag is true.
    Point(Style, bool),
    Mark,
    /// An area with its edge.
    Region(Style),
}

pub(super) struct Figure<'c> {
    pub(super) title: &'c str,
    pub(super) chart: &'c Chart,
}

impl Figure<'_> {
    pub(super) fn document(&self) -> Document {
        let panels = &self.chart.panels;
        let depth = Axis::depth(self.chart.blocks());
        let rows = panels.len().div_ceil(COLUMNS) as f64;
        let legend_top = TOP + rows * (HEIGHT + MARGIN.1) - 10.0;
        let mut document = page(self.title, legend_top, &signs(self.chart));
        for (index, panel) in panels.iter().enumerate() {
            let (row, column) = (index / COLUMNS, index % COLUMNS);
            let corner = (MARGIN.0 + column as f64 * (WIDTH + MARGIN.0), TOP + row as f64 * (HEIGHT + MARGIN.1));
            let depth_title = label("blocks passed", (WIDTH / 2.0, HEIGHT + 34.0), "middle", FONT);
            document.append(draw(panel, &depth).add(depth_title).set("transform", moved(corner)));
        }
        document
    }
}

/// Returns a page with a title and, from `legend_top` to the end, a legend.
pub(super) fn page(title: &str, legend_top: f64, legend: &[(Sign, String)]) -> Document {
    let (legend, legend_height) = entries(legend);
    let height = legend_top + legend_height;
    let size = (1.4 * FONT).min((TOTAL_WIDTH - 40.0) / (LETTER * title.chars().count().max(1) as f64));
    Document::new()
        .set("viewBox", (0.0, 0.0, TOTAL_WIDTH, height))
        .set("width", TOTAL_WIDTH)
        .set("height", height)
        .set("font-family", "Helvetica, Arial, 'DejaVu Sans', sans-serif")
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"))
        .add(label(title, (20.0, 28.0), "start", size))
        .add(legend.set("transform", moved((MARGIN.0, legend_top))))
}

/// Draws the entries of the legend in as many columns as the longest text allows. Returns the drawing and its height in
/// pixels.
fn entries(legend: &[(Sign, String)]) -> (Group, f64) {
    let longest = legend.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
    let width = LETTER * FONT * longest as f64 + 60.0;
    let columns = (((TOTAL_WIDTH - MARGIN.0) / width).floor() as usize).max(1);
    let mut group = Group::new().set("class", "legend");
    for (index, (sign, text)) in legend.iter().enumerate() {
        let corner = ((index % columns) as f64 * width, (index / columns) as f64 * LEGEND_LINE);
        let entry = sign.draw().add(label(text, (38.0, 16.0), "start", FONT));
        group = group.add(entry.set("transform", moved(corner)));
    }
    (group, LEGEND_LINE * legend.len().div_ceil(columns) as f64 + 16.0)
}

/// Returns the entries of the legend, each a symbol and its text: first one per named curve, then the band, the
/// observed points and the marks, if they occur in the chart.
fn signs(chart: &Chart) -> Vec<(Sign, String)> {
    let has_points = chart.curves().any(|curve| !curve.points.is_empty());
    let marked = chart.names.len() > 1 && !has_points;
    let named = chart.names.iter().enumerate();
    let mut signs: Vec<(Sign, String)> =
        named.map(|(index, name)| (Sign::Curve(Style(index), marked), name.clone())).collect();
    let has_band = |panel: &Panel| panel.shows_bands() && panel.curves.iter().any(|curve| !curve.band.is_empty());
    if chart.panels.iter().any(has_band) {
        signs.push((Sign::Band(Style(0)), "one initialisation, ± one standard deviation".to_owned()));
    }
    if has_points {
        let stride = chart.curves().map(stride).max().unwrap_or(1);
        let share = if stride > 1 { format!(", one of {stride} shown") } else { String::new() };
        let has_bars = chart.curves().flat_map(|curve| &curve.points).any(|point| point.bar.is_some());
        let errors = if has_bars { ", 95 % interval" } else { "" };
        signs.push((Sign::Point(Style(0), has_bars), format!("observed{errors}{share}")));
    }
    if chart.curves().any(|curve| !curve.marks.is_empty()) {
        signs.push((Sign::Mark, "largest entry exceeds the format".to_owned()));
    }
    signs
}

pub(super) fn moved((x, y): PlotPoint) -> String {
    format!("translate({x:.1} {y:.1})")
}

impl Sign {
    fn draw(&self) -> Group {
        let middle = (15.0, 12.0);
        match self {
            Self::Curve(style, marked) => {
                let group = Group::new().add(style.line("M0 12H30".to_owned()));
                if *marked { group.add(style.marker(middle)) } else { group }
            }
            Self::Band(style) => Group::new().add(style.area("M0 6H30V18H0Z".to_owned())),
            Self::Point(style, has_bars) => {
                let bar = has_bars.then(|| rule((15.0, 4.0), (15.0, 20.0), "#000000"));
                let group = bar.into_iter().fold(Group::new(), Group::add);
                group.add(style.marker(middle).set("stroke", "#000000"))
            }
            Self::Mark => Group::new().add(cross(middle)),
            Self::Region(style) => {
                let outline = "M0 3H30V21H0Z".to_owned();
                Group::new().add(style.hatched(outline.clone())).add(style.line(outline))
            }
        }
    }
}
