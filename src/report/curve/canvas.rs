//! A canvas of characters that are made of dots.

use super::Ink;

/// The values of the eight dots of a braille character, by row and column; the character is U+2800 plus their sum.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
const BLANK: u32 = 0x2800;

/// A grid of characters that curves are drawn on.
pub(super) struct Canvas {
    ink: Ink,
    /// The sum of the values of the dots that are set, by row and column of the character.
    cells: Vec<Vec<u32>>,
    /// Observed points, by row and column.
    points: Vec<(usize, usize)>,
}

impl Canvas {
    pub(super) fn new(ink: Ink, columns: usize, rows: usize) -> Self {
        Self { ink, cells: vec![vec![0; columns]; rows], points: Vec::new() }
    }

    /// Draws a line through `places`, given as shares of the width and height of the canvas from its lower left corner.
    pub(super) fn curve(&mut self, places: &[(f64, f64)]) {
        let dots: Vec<(f64, f64)> = places.iter().map(|place| self.dot(*place)).collect();
        if let [(x, y)] = dots[..] {
            self.set(x, y);
        }
        for ends in dots.windows(2) {
            let ((x, y), (to_x, to_y)) = (ends[0], ends[1]);
            let steps = (to_x - x).abs().max((to_y - y).abs()).ceil().max(1.0);
            for step in 0..=steps as usize {
                let share = step as f64 / steps;
                self.set(x + share * (to_x - x), y + share * (to_y - y));
            }
        }
    }

    /// Draws an observed point.
    pub(super) fn point(&mut self, place: (f64, f64)) {
        let [across, down] = self.resolution();
        let (x, y) = self.dot(place);
        self.points.push((y.round() as usize / down, x.round() as usize / across));
    }

    /// Returns the rows, from the top.
    pub(super) fn rows(&self) -> impl Iterator<Item = String> {
        self.cells.iter().enumerate().map(|(row, cells)| {
            let sign = |(column, dots): (usize, &u32)| match (self.points.contains(&(row, column)), self.ink, dots) {
                (true, Ink::Braille | Ink::Ascii, _) => 'o',
                (false, Ink::Braille | Ink::Ascii, 0) => ' ',
                (false, Ink::Braille, dots) => char::from_u32(BLANK + dots).expect("a sum of eight dots is braille"),
                (false, Ink::Ascii, _) => '*',
            };
            cells.iter().enumerate().map(sign).collect()
        })
    }

    /// Returns the number of dots in a character, across and down.
    fn resolution(&self) -> [usize; 2] {
        match self.ink {
            Ink::Braille => [2, 4],
            Ink::Ascii => [1, 1],
        }
    }

    /// Returns the coordinates of a place in dots from the upper left. Places outside move to the edge.
    fn dot(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let [across, down] = self.resolution();
        let last = |dots: usize| (dots - 1) as f64;
        let [width, height] = [last(across * self.cells[0].len()), last(down * self.cells.len())];
        (x.clamp(0.0, 1.0) * width, (1.0 - y.clamp(0.0, 1.0)) * height)
    }

    fn set(&mut self, x: f64, y: f64) {
        let [across, down] = self.resolution();
        let (x, y) = (x.round() as usize, y.round() as usize);
        self.cells[y / down][x / across] |= DOTS[y % down][x % across];
    }
}
