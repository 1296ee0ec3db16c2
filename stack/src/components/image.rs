//! Images, whose pixels are the tokens of a sequence, and windows that slide over them.

use serde::{Deserialize, Serialize};

/// The size of images whose pixels are the tokens of a sequence: row by row, one image after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
}

impl Image {
    /// Returns the number of pixels.
    pub fn pixels(self) -> usize {
        self.height * self.width
    }
}

/// Windows that slide along one axis: tap k of window a reads the position a·stride + k − `before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of positions.
    pub length: usize,
    /// Number of positions of a window.
    pub kernel: usize,
    /// Number of positions between two windows.
    pub stride: usize,
    /// Number of positions that are added before the first.
    pub before: usize,
    /// Number of positions that are added after the last.
    pub after: usize,
}

impl Axis {
    /// Returns the number of windows; 0 if the kernel does not fit.
    pub fn windows(self) -> usize {
        let padded = self.length + self.before + self.after;
        padded.checked_sub(self.kernel).map_or(0, |room| room / self.stride + 1)
    }

    /// Returns the position that a tap of a window reads; `None` if this is an added position.
    pub fn read(self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap).checked_sub(self.before).filter(|&at| at < self.length)
    }

    /// Returns every window and tap with the position that it reads.
    fn reads(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let taps = (0..self.windows()).flat_map(move |window| (0..self.kernel).map(move |tap| (window, tap)));
        taps.filter_map(move |(window, tap)| Some((window, tap, self.read(window, tap)?)))
    }
}

/// Windows that slide over the rows and columns of images. A sequence without images is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    /// The windows along a column of pixels.
    pub rows: Axis,
    /// The windows along a row of pixels.
    pub columns: Axis,
}

/// A tap of a window inside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// The window, which is the token of the output.
    pub window: usize,
    /// The number of the tap, row by row.
    pub tap: usize,
    /// The token of the input.
    pub input: usize,
}

impl Sliding {
    /// Square windows over images, with the same padding on all sides.
    pub fn over(image: Image, kernel: usize, stride: usize, padding: usize) -> Self {
        let axis = |length| Axis { length, kernel, stride, before: padding, after: padding };
        Self { rows: axis(image.height), columns: axis(image.width) }
    }

    /// Windows over the tokens of one sequence.
    pub(super) fn along(columns: Axis) -> Self {
        Self { rows: Axis { length: 1, kernel: 1, stride: 1, before: 0, after: 0 }, columns }
    }

    /// Returns the size of the images at the output.
    pub fn output(self) -> Image {
        Image { height: self.rows.windows(), width: self.columns.windows() }
    }

    /// Returns the number of taps of a window.
    pub fn taps(self) -> usize {
        self.rows.kernel * self.columns.kernel
    }

    /// Returns the number of windows for `seq_len` tokens.
    pub fn windows(self, seq_len: usize) -> usize {
        self.images(seq_len) * self.output().pixels()
    }

    /// Returns the taps inside the images, for `seq_len` tokens.
    pub fn reads(self, seq_len: usize) -> impl Iterator<Item = Tap> {
        let outputs = self.output();
        (0..self.images(seq_len)).flat_map(move |image| {
            self.rows.reads().flat_map(move |(row, row_tap, y)| {
                self.columns.reads().map(move |(column, column_tap, x)| Tap {
                    window: (image * outputs.height + row) * outputs.width + column,
                    tap: row_tap * self.columns.kernel + column_tap,
                    input: (image * self.rows.length + y) * self.columns.length + x,
                })
            })
        })
    }

    fn images(self, seq_len: usize) -> usize {
        seq_len / (self.rows.length * self.columns.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of 3 × 4 pixels with windows of 3 × 3, stride 2 and padding 1 have 2 × 2 windows each. The first
    /// window lacks a row and a column.
    #[test]
    fn windows_over_two_images() {
        let sliding = Sliding::over(Image { height: 3, width: 4 }, 3, 2, 1);
        assert_eq!(sliding.output(), Image { height: 2, width: 2 });
        assert_eq!(sliding.windows(24), 8);
        let of = |window| sliding.reads(24).filter(move |read| read.window == window);
        let first: Vec<[usize; 2]> = of(0).map(|read| [read.tap, read.input]).collect();
        assert_eq!(first, [[4, 0], [5, 1], [7, 4], [8, 5]]);
        let last: Vec<usize> = of(7).map(|read| read.input).collect();
        assert_eq!(last, [17, 18, 19, 21, 22, 23]);
    }
}
