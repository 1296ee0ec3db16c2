//! Pictures in other formats than SVG, with a font that they bring along. The bytes are the same on every machine with
//! the same kind of processor.

use std::io::{self, Write};

use png::{ColorType, Compression, Encoder, FilterType};
use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree},
};
use svg2pdf::{ConversionOptions, PageOptions};

use super::Picture;

/// The font: Latin, Greek and Cyrillic letters, digits and signs. Its letters are as wide as those of Arial, for which
/// pictures leave room.
const FONT: &[u8] = include_bytes!("../../../data/fonts/arimo.ttf");
const FAMILY: &str = "Arimo";

/// Pixels of a PNG per pixel of the SVG, so that it is sharp on today's displays.
const SCALE: f32 = 2.0;

/// The longest allowed side, in pixels of the SVG: ten times the side of a screen, and 200 inches, the largest size of
/// a PDF page.
const LONGEST: f32 = 14400.0;

/// Pixels of the SVG per inch of PDF: one pixel per point. At any other scale svg2pdf changes hatches.
const DPI: f32 = 72.0;

impl Picture {
    /// Writes the picture as PNG.
    pub fn write_png(&self, out: &mut dyn Write) -> io::Result<()> {
        let tree = self.tree()?;
        let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| io::Error::other("an empty picture"))?;
        let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| io::Error::other("no memory"))?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
        // The white background makes every pixel opaque. Lines on white are smallest unfiltered.
        let colours: Vec<u8> = pixels.pixels().iter().flat_map(|at| [at.red(), at.green(), at.blue()]).collect();
        let mut encoder = Encoder::new(out, size.width(), size.height());
        encoder.set_color(ColorType::Rgb);
        encoder.set_compression(Compression::Best);
        encoder.set_filter(FilterType::NoFilter);
        let mut rows = encoder.write_header()?;
        rows.write_image_data(&colours)?;
        Ok(rows.finish()?)
    }

    /// Writes the picture as a page of PDF, of its own size.
    pub fn write_pdf(&self, out: &mut dyn Write) -> io::Result<()> {
        let page = svg2pdf::to_pdf(&self.tree()?, ConversionOptions::default(), PageOptions { dpi: DPI });
        out.write_all(&in_order(&page.map_err(|error| io::Error::other(error.to_string()))?))
    }

    /// Returns the tree to be painted, with texts as glyphs of the font.
    fn tree(&self) -> io::Result<Tree> {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_font_data(FONT.to_vec());
        fonts.set_sans_serif_family(FAMILY);
        let tree = Tree::from_str(&self.0.to_string(), &options).map_err(io::Error::other)?;
        let (width, height) = (tree.size().width(), tree.size().height());
        if width.max(height) > LONGEST {
            return Err(io::Error::other(format!(
                "the picture is {width} × {height}, expected at most {LONGEST} on a side; *.svg may be larger"
            )));
        }
        Ok(tree)
    }
}

/// Returns the page with the entries of its resources (lines such as `/gs0 7 0 R`) sorted. svg2pdf writes these lines
/// in the order of a hash map, which differs from run to run. Their order has no meaning, and no other line is moved.
fn in_order(page: &[u8]) -> Vec<u8> {
    let is_entry = |line: &[u8]| line.starts_with(b"      /") && (line.ends_with(b" R") || line.ends_with(b" R]"));
    let mut lines: Vec<&[u8]> = page.split(|byte| *byte == b'\n').collect();
    for entries in lines.chunk_by_mut(|a, b| is_entry(a) && is_entry(b)) {
        entries.sort_unstable();
    }
    lines.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use resvg::usvg::{Group, Node};

    use super::super::tests::{SHAPE, prediction};
    use super::*;
    use crate::architecture::Architecture;
    use crate::compare::{Setting, compare};
    use crate::phase::{Axis, phase};
    use crate::schemes::{SCHEMES, Scheme};

    fn picture() -> Picture {
        Picture::of_prediction("a network", &prediction(&[1.0, 10.0, 100.0]), SHAPE)
    }

    fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out).expect("a vector takes everything");
        out
    }

    /// Returns the texts with a glyph that the font lacks.
    fn undrawn(picture: &Picture) -> Vec<String> {
        fn walk(group: &Group, found: &mut Vec<String>) {
            for node in group.children() {
                match node {
                    Node::Group(group) => walk(group, found),
                    Node::Text(text) => {
                        let mut glyphs = text.layouted().iter().flat_map(|span| &span.positioned_glyphs);
                        if glyphs.any(|glyph| glyph.id.0 == 0) {
                            found.extend(text.chunks().iter().map(|chunk| chunk.text().to_owned()));
                        }
                    }
                    Node::Path(_) | Node::Image(_) => {}
                }
            }
        }
        let mut found = Vec::new();
        walk(picture.tree().expect("a picture").root(), &mut found);
        found
    }

    #[test]
    fn a_png_has_its_title_in_twice_the_pixels() {
        let picture = picture();
        let png = written(|out| picture.write_png(out));
        let pixels = Pixmap::decode_png(&png).expect("a PNG");
        let size = picture.tree().expect("a picture").size();
        assert_eq!([pixels.width(), pixels.height()], [size.width(), size.height()].map(|side| (2.0 * side) as u32));
        let count = |[left, top, right, bottom]: [u32; 4], is_counted: fn(u8) -> bool| {
            let places = (top..bottom).flat_map(|y| (left..right).map(move |x| (x, y)));
            places.filter(|(x, y)| pixels.pixel(*x, *y).is_some_and(|pixel| is_counted(pixel.green()))).count()
        };
        // The title starts at 20, 28; next to it and above it the picture is white.
        assert!(count([40, 30, 160, 58], |green| green < 64) > 200);
        assert_eq!(count([0, 0, pixels.width(), 24], |green| green < 255), 0);
        assert!(png == written(|out| picture.write_png(out)), "other bytes");
    }

    #[test]
    fn a_pdf_is_a_page_with_its_font() {
        let picture = picture();
        let pdf = written(|out| picture.write_pdf(out));
        let text = String::from_utf8_lossy(&pdf);
        let count = |word: &str| text.matches(word).count();
        assert!(text.starts_with("%PDF-"), "{}", &text[..20]);
        let size = picture.tree().expect("a picture").size();
        let media = format!("/MediaBox [0 0 {} {}]", size.width(), size.height());
        assert_eq!([media.as_str(), "/Type /Page\n", "/Type /Font\n", "/FontFile"].map(count), [1, 1, 2, 1], "{text}");
        assert!(text.contains("+Arimo"), "{text}");
        for _ in 0..8 {
            assert!(pdf == written(|out| picture.write_pdf(out)), "other bytes");
        }
    }

    #[test]
    fn all_that_is_written_has_glyphs() {
        let setting =
            Setting::from(Architecture { n_layers: 6, d_model: 64, n_heads: Some(2), ..Architecture::default() });
        let schemes: Vec<Scheme> = SCHEMES.iter().filter_map(|about| Scheme::parse(about.name).ok()).collect();
        let candidates = compare(&setting, &schemes).expect("a network");
        let axes =
            ["weight-gain=0.2..5:3", "branch-scale=0.05..2:3"].map(|text| text.parse::<Axis>().expect("an axis"));
        let map = phase(&setting, &schemes[0], &axes, &|| ()).expect("a map");
        let powers = prediction(&[1e-298, 1e-7, 1e15, 1e64]);
        for picture in [
            Picture::of_comparison("Größe, ширина, ψ", &candidates),
            Picture::of_phase("a map", &map),
            Picture::of_prediction("powers", &powers, SHAPE),
            Picture::of_validation("a network", &powers, &[], SHAPE),
        ] {
            assert_eq!(undrawn(&picture), [""; 0]);
        }
        assert_eq!(undrawn(&Picture::of_prediction("深", &powers, SHAPE)), ["深"]);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let height = 20_000;
        let picture = Picture(svg::Document::new().set("width", 100).set("height", height));
        for written in [picture.write_png(&mut io::sink()), picture.write_pdf(&mut io::sink())] {
            let message = written.expect_err("too high").to_string();
            assert!(message.contains("100 × 20000, expected at most 14400"), "{message}");
        }
    }
}
