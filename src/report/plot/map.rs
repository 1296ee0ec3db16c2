//! A map over two numbers: hatched where the network fails, with the edges where failures begin.
//!
//! Each failure has its own hatch, colour and dashes, so that overlapping regions can be distinguished, also in black
//! and white.

use std::fmt::Write as _;

use svg::Document;
use svg::node::element::{Definitions, Group, Rectangle, Title};

use super::figure::{FONT, MARGIN, Sign, TOP, moved, page};
use super::outline::{PlotPoint, open};
use super::panel::{cross, label, rule};
use crate::phase::{self, Phase, Region};
use crate::report::chart::{Axis, Style};
use crate::report::phase::meaning;
use crate::verdict::Failure;

/// Width inside the frame, in pixels.
const WIDTH: f64 = 860.0;
/// Height inside the frame, in pixels.
const HEIGHT: f64 = 520.0;

/// Draws a map.
pub(super) fn document(title: &str, phase: &Phase) -> Document {
    let frame = Frame::of(phase);
    let is_blank = phase.cells.iter().any(|cell| cell.outcome.is_err());
    let mut legend: Vec<(Sign, String)> = phase
        .regions
        .iter()
        .map(|region| (Sign::Region(style(region.failure)), meaning(region.failure).to_owned()))
        .collect();
    if is_blank {
        legend.push((Sign::Mark, "nothing to predict".to_owned()));
    }
    let patterns = phase.regions.iter().map(|region| style(region.failure).pattern());
    let definitions = patterns.fold(Definitions::new(), Definitions::add);
    let map = frame.draw(phase).set("transform", moved((MARGIN.0, TOP)));
    page(title, TOP + HEIGHT + 54.0, &legend).add(definitions).add(map)
}

/// Returns the style of a failure, which is the same in every map.
fn style(failure: Failure) -> Style {
    Style(Failure::ALL.iter().position(|known| *known == failure).expect("all failures are known"))
}

struct Frame {
    axes: [Axis; 2],
}

impl Frame {
    fn of(phase: &Phase) -> Self {
        let axis = |index: usize| {
            let values = &phase.values[index];
            Axis::exact([values[0], values[values.len() - 1]], phase.axes[index].is_log)
        };
        Self { axes: [axis(0), axis(1)] }
    }

    fn place(&self, at: phase::MapPoint) -> Option<PlotPoint> {
        let [x, y] = [0, 1].map(|axis| self.axes[axis].share(at[axis].into()));
        Some((WIDTH * x?, HEIGHT * (1.0 - y?)))
    }

    fn places(&self, line: &[phase::MapPoint]) -> Vec<PlotPoint> {
        line.iter().filter_map(|at| self.place(*at)).collect()
    }

    fn draw(&self, phase: &Phase) -> Group {
        let mut group = Group::new().set("class", "map");
        for region in &phase.regions {
            group = group.add(style(region.failure).hatched(self.area(region)).set("class", "area"));
        }
        group = self.rules(group);
        for region in &phase.regions {
            for line in &region.edges {
                let edge = style(region.failure).line(open(&self.places(line))).set("class", "edge");
                group = group.add(edge.set("stroke-width", 2.4).add(Title::new(meaning(region.failure))));
            }
        }
        for cell in phase.cells.iter().filter(|cell| cell.outcome.is_err()) {
            group = self
                .place(cell.at)
                .into_iter()
                .fold(group, |group, place| group.add(cross(place).set("class", "mark")));
        }
        let [x, y] = &phase.axes;
        group = group.add(label(&x.name, (WIDTH / 2.0, HEIGHT + 36.0), "middle", FONT));
        let turned = format!("translate(-54 {:.1}) rotate(-90)", HEIGHT / 2.0);
        group.add(label(&y.name, (0.0, 0.0), "middle", FONT).set("transform", turned))
    }

    /// Returns all polygons as one path.
    fn area(&self, region: &Region) -> String {
        let mut data = String::new();
        for polygon in &region.area {
            write!(data, "{}Z", open(&self.places(polygon))).expect("a string takes everything");
        }
        data
    }

    fn rules(&self, mut group: Group) -> Group {
        let [x, y] = &self.axes;
        for tick in &x.ticks {
            let at = WIDTH * tick.share;
            group = group.add(rule((at, HEIGHT), (at, HEIGHT + 5.0), "#888888"));
            group = group.add(label(&tick.label, (at, HEIGHT + 18.0), "middle", 11.0));
        }
        for tick in &y.ticks {
            let at = HEIGHT * (1.0 - tick.share);
            group = group.add(rule((-5.0, at), (0.0, at), "#888888"));
            group = group.add(label(&tick.label, (-9.0, at + 4.0), "end", 11.0));
        }
        let frame = Rectangle::new().set("width", WIDTH).set("height", HEIGHT);
        group.add(frame.set("fill", "none").set("stroke", "#888888"))
    }
}
