//! Tables between `<!-- measured: NAME -->` and `<!-- end -->` of a page.

use std::{env, fs, path::Path, sync::Mutex};

/// Pages with tables: first the complete ones, then those whose measurements are still to come.
const PAGES: [&str; 2] = ["docs/accuracy.md", "data/measured/README.md"];
/// Figures may differ by this relative amount, or by one in their last place, because processors differ in their last
/// bits.
const SLACK: f64 = 0.02;
const END: &str = "<!-- end -->";

/// A lock, so that tests write one after the other.
static WRITING: Mutex<()> = Mutex::new(());

/// A table in Markdown.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Self(String::new());
        table.row(columns);
        table.0 += &"|---".repeat(columns.len());
        table.0 += "|\n";
        table
    }

    pub(crate) fn row(&mut self, cells: &[impl AsRef<str>]) {
        for cell in cells {
            self.0 += "| ";
            self.0 += cell.as_ref();
            self.0 += " ";
        }
        self.0 += "|\n";
    }

    /// Fails if the page has another table under this name. With `SIGPROP_ACCURACY=write` it writes the table instead.
    pub(crate) fn check(&self, name: &str) {
        self.compare(name, false);
    }

    /// Fails if rows of this table are missing from the table with this name on the page.
    pub(super) fn check_part(&self, name: &str) {
        self.compare(name, true);
    }

    fn compare(&self, name: &str, part: bool) {
        let _guard = WRITING.lock();
        let start = format!("<!-- measured: {name} -->\n\n");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pages = PAGES.map(|page| fs::read_to_string(root.join(page)).expect("a page"));
        let found = PAGES.iter().zip(&pages).find_map(|(page, text)| {
            let begin = text.find(&start)? + start.len();
            Some((page, text, begin..begin + text[begin..].find(END)?))
        });
        let Some((page, text, range)) = found else { panic!("no page has the table `{name}`:\n{}", self.0) };
        let shown = text[range.clone()].trim_end();
        match env::var("SIGPROP_ACCURACY").as_deref() {
            Ok("write") if part => {}
            Ok("write") => {
                let text = [&text[..range.start], &self.0, "\n", &text[range.end..]].concat();
                fs::write(root.join(page), text).expect("the page can be written");
            }
            Ok(other) => panic!("SIGPROP_ACCURACY is `write` or not there, got {other:?}"),
            Err(_) => {
                let mut shown: Vec<&str> = shown.lines().collect();
                if part {
                    let first = |line: &str| line.split(" | ").next().map(str::to_owned);
                    shown.retain(|line| self.0.lines().any(|row| first(row) == first(line)));
                }
                let wrong = differences(&shown, &self.0.lines().collect::<Vec<_>>());
                assert!(
                    wrong.is_empty(),
                    "{page}, {name} (SIGPROP_ACCURACY=write writes it anew):\n{}",
                    wrong.join("\n")
                );
            }
        }
    }
}

/// Pairs of lines that differ by more than the slack of figures.
fn differences(shown: &[&str], got: &[&str]) -> Vec<String> {
    let places = 0..shown.len().max(got.len());
    let pairs = places.map(|place| [shown, got].map(|lines| lines.get(place).copied().unwrap_or_default()));
    pairs.filter(|[shown, got]| !alike(shown, got)).map(|[shown, got]| format!("page {shown}\nnow  {got}")).collect()
}

fn alike(shown: &str, got: &str) -> bool {
    let [shown, got] = [shown, got].map(|line| line.split_whitespace().collect::<Vec<_>>());
    shown.len() == got.len() && shown.iter().zip(got).all(|(shown, got)| *shown == got || close(shown, got))
}

/// Returns true if both are figures and nearly equal.
fn close(shown: &str, got: &str) -> bool {
    let (Ok(before), Ok(now)) = (shown.parse::<f64>(), got.parse::<f64>()) else { return false };
    let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    (before - now).abs() <= (SLACK * before.abs()).max(1.001 * 0.1f64.powi(decimals as i32))
}

/// The README shows five columns of the table of encoders.
#[test]
fn the_readme_has_the_measured_table() {
    const COLUMNS: [usize; 5] = [1, 2, 3, 5, 7];
    let [readme, measured] = ["README.md", "data/measured/README.md"]
        .map(|page| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page"));
    let (_, table) = measured.split_once("<!-- measured: encoders -->").expect("its table");
    let (table, _) = table.split_once(END).expect("an end");
    for row in table.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, figures @ ..] = COLUMNS.map(|column| cells[column]);
        let name = match name {
            "weight_grad_second_moment" => "weight gradients".to_owned(),
            _ => name.replace("grad_token_", "gradient ").replace("grad_", "gradient ").replace('_', " "),
        };
        let shown = readme.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let shown: Vec<&str> = shown.unwrap_or_default().trim_matches('|').split('|').map(str::trim).skip(1).collect();
        // Correlations have no R² of logarithms there.
        let is_empty = |cell: &&str| cell.is_empty();
        assert!(
            shown.iter().zip(figures).all(|(shown, figure)| is_empty(shown) || *shown == figure),
            "{name}: {shown:?}"
        );
        assert_eq!(shown.len(), figures.len(), "README.md, {name}");
    }
}

#[test]
fn figures_have_slack_and_words_none() {
    for (shown, got) in
        [("| a | 1.00 % |", "| a | 1.01 % |"), ("| 100 of 200 |", "| 102 of 199 |"), ("| −1 |", "| −1 |")]
    {
        assert!(alike(shown, got), "{shown} {got}");
    }
    for (shown, got) in [("| a | 1.00 % |", "| a | 1.03 % |"), ("| a | 1 |", "| b | 1 |"), ("| 1 |", "| 1 | 2 |")] {
        assert!(!alike(shown, got), "{shown} {got}");
    }
    let mut table = Table::new(&["a", "b"]);
    table.row(&["1", "2"]);
    assert_eq!(table.0, "| a | b |\n|---|---|\n| 1 | 2 |\n");
}
