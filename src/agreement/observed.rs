//! Measurements that a user provides: a CSV of observed numbers, matched with a prediction by site and quantity.

use std::collections::HashMap;
use std::f64::consts::LN_10;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};
use sigprop_stack::{Cell, Number, SiteRow, SiteTable, WeightRow};

use super::{Compared, Comparison, compare_site, compare_weight, rounding};
use crate::nearest::nearest;

/// One observed number.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Line of the file.
    pub line: u64,
    /// Path of the site, or name of the weight tensor.
    pub site: String,
    /// The observed quantity.
    pub quantity: Compared,
    /// The observed number; its standard error is NaN if it is unknown.
    pub cell: Cell,
    /// Number of replicates; `None` if it is unknown.
    pub replicates: Option<usize>,
}

/// An error in a file of observations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ObservedError {
    /// Line of the file.
    pub line: u64,
    /// The text that was expected and the text that was found, with a hint.
    pub message: String,
}

impl ObservedError {
    pub(crate) fn new(line: u64, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// Indices of the columns in a line of the file. `before` are columns that are required in addition to the usual ones.
struct Columns<const N: usize> {
    before: [usize; N],
    site: usize,
    quantity: usize,
    observed: usize,
    std_error: usize,
    replicates: Option<usize>,
}

impl<const N: usize> Columns<N> {
    fn of(header: &StringRecord, before: [&str; N]) -> Result<Self, ObservedError> {
        let place = |name: &str| header.iter().position(|column| column == name);
        let needed = |name: &str| {
            place(name).ok_or_else(|| {
                let found = header.iter().collect::<Vec<_>>().join(",");
                let expected = [&before[..], &["site", "quantity", "observed", "std_error"]].concat().join(", ");
                ObservedError::new(1, format!("expected the columns {expected}; {name} is missing, got {found}"))
            })
        };
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(before) {
            *place = needed(name)?;
        }
        Ok(Self {
            before: places,
            site: needed("site")?,
            quantity: needed("quantity")?,
            observed: needed("observed")?,
            std_error: needed("std_error")?,
            replicates: place("replicates"),
        })
    }

    /// Returns the `record` with blank names and numbers of replicates filled in from the record `above`. Blank values
    /// and standard errors stay blank.
    fn repeated(&self, record: &StringRecord, above: &StringRecord) -> StringRecord {
        let repeats = |place| {
            self.before.contains(&place)
                || [Some(self.site), Some(self.quantity), self.replicates].contains(&Some(place))
        };
        let fields = record.iter().enumerate().map(|(place, field)| {
            if field.is_empty() && repeats(place) { above.get(place).unwrap_or_default() } else { field }
        });
        let mut full: StringRecord = fields.collect();
        full.set_position(record.position().cloned());
        full
    }
}

/// Reads observations: columns `site,quantity,observed,std_error`, optionally `replicates`, others ignored.
///
/// A blank site, quantity or number of replicates repeats the value of the line above. A line without an observed value
/// is skipped; a blank standard error means that it is unknown.
pub fn read_observations(source: impl Read) -> Result<Vec<Observation>, ObservedError> {
    Ok(read(source, [])?.into_iter().map(|([], seen)| seen).collect())
}

/// Reads observations of several networks. The columns `before`, which identify the network, are required too; a blank
/// one repeats the value of the line above.
pub(crate) fn read<const N: usize>(
    source: impl Read,
    before: [&str; N],
) -> Result<Vec<([String; N], Observation)>, ObservedError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(source);
    let columns = Columns::of(reader.headers().map_err(|error| unreadable(&error))?, before)?;
    let mut observations = Vec::new();
    let mut above = StringRecord::new();
    for record in reader.into_records() {
        let record = columns.repeated(&record.map_err(|error| unreadable(&error))?, &above);
        let before = columns.before.map(|place| record.get(place).unwrap_or_default().to_owned());
        observations.extend(observation(&record, &columns)?.map(|seen| (before, seen)));
        above = record;
    }
    if observations.is_empty() {
        return Err(ObservedError::new(1, "expected observations, got none"));
    }
    Ok(observations)
}

fn observation<const N: usize>(
    record: &StringRecord,
    columns: &Columns<N>,
) -> Result<Option<Observation>, ObservedError> {
    let line = record.position().map_or(0, csv::Position::line);
    let field = |place: usize| record.get(place).unwrap_or_default();
    if field(columns.observed).is_empty() {
        return Ok(None);
    }
    let error = |column: &str, expected: &str, got: &str| {
        ObservedError::new(line, format!("{column}: expected {expected}, got `{got}`"))
    };
    let name = field(columns.quantity);
    let quantity = Compared::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let hint = nearest(name, Compared::ALL.map(Compared::name)).unwrap_or("variance");
        error("quantity", &format!("a quantity such as {hint}"), name)
    })?;
    let observed = field(columns.observed);
    let value = number(observed).ok_or_else(|| error("observed", "a number", observed))?;
    let std_error = match field(columns.std_error) {
        "" => f64::NAN.into(),
        text => number(text)
            .filter(|error| error.is_zero() || error.value() > 0.0)
            .ok_or_else(|| error("std_error", "a number, not negative", text))?,
    };
    let replicates = match columns.replicates.map_or("", field) {
        "" => None,
        text => Some(text.parse().map_err(|_| error("replicates", "a whole number", text))?),
    };
    let site = field(columns.site).to_owned();
    Ok(Some(Observation { line, site, quantity, cell: Cell { value, std_error }, replicates }))
}

/// Reads decimal text, also beyond f64: `1.3e16300`.
fn number(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok()?;
    if value.is_normal() {
        return Some(value.into());
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (mantissa, exponent): (f64, i32) = (mantissa.parse().ok()?, exponent.parse().ok()?);
    mantissa.is_finite().then(|| Number::scaled(mantissa, f64::from(exponent) * LN_10))
}

fn unreadable(error: &csv::Error) -> ObservedError {
    ObservedError::new(error.position().map_or(1, csv::Position::line), error.to_string())
}

/// Compares every observation with its prediction; a site or tensor that the prediction does not have is an error.
pub fn compare_observations(
    predicted: &SiteTable,
    observations: &[Observation],
) -> Result<Vec<Comparison>, ObservedError> {
    let sites: HashMap<&str, &SiteRow> = predicted.sites.iter().map(|row| (row.site.as_str(), row)).collect();
    let weights: HashMap<&str, &WeightRow> = predicted.weights.iter().map(|row| (row.tensor.as_str(), row)).collect();
    let observed: HashMap<(&str, Compared), Cell> =
        observations.iter().map(|seen| ((seen.site.as_str(), seen.quantity), seen.cell)).collect();
    let gradients = observations.iter().filter(|seen| seen.quantity == Compared::WeightGradient);
    let rounding = rounding(gradients.map(|seen| seen.cell.value));
    let compared = |seen: &Observation| {
        let site = seen.site.as_str();
        if seen.quantity == Compared::WeightGradient {
            let row = weights.get(site).ok_or_else(|| unknown(seen, "weight tensor", weights.keys()))?;
            return Ok(compare_weight(row, &seen.cell, &rounding));
        }
        let row = sites.get(site).ok_or_else(|| unknown(seen, "site", sites.keys()))?;
        let level = |quantity| observed.get(&(site, quantity)).copied();
        compare_site(row, seen.quantity, &seen.cell, level).ok_or_else(|| {
            let name = seen.quantity.name();
            ObservedError::new(seen.line, format!("nothing is predicted of {name} at {site}"))
        })
    };
    observations.iter().map(|seen| Ok(Comparison { replicates: seen.replicates, ..compared(seen)? })).collect()
}

fn unknown<'a>(seen: &Observation, what: &str, known: impl Iterator<Item = &'a &'a str>) -> ObservedError {
    let hint = nearest(&seen.site, known.copied()).map_or(String::new(), |name| format!("; did you mean {name}?"));
    ObservedError::new(seen.line, format!("the network has no {what} `{}`{hint}", seen.site))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::tests::{close, row};
    use sigprop_stack::Quantity;

    fn predicted() -> SiteTable {
        let cells = [Some(Cell::exact(1.0)), Some(Cell::exact(3.0)), Some(Cell::exact(0.5)), None, None];
        let weight = WeightRow {
            layer: 0,
            tensor: "blocks.0.ffn.in.weight".to_owned(),
            variance: 1.0,
            grad_second_moment: Cell::exact(2.0),
        };
        SiteTable { sites: vec![row(0, cells)], weights: vec![weight] }
    }

    fn compared(csv: &str) -> Result<Vec<Comparison>, ObservedError> {
        compare_observations(&predicted(), &read_observations(csv.as_bytes())?)
    }

    fn message(csv: &str) -> String {
        compared(csv).unwrap_err().to_string()
    }

    #[test]
    fn observations_are_compared_by_site_and_quantity() {
        let rows = compared(
            "layer,site,quantity,observed,std_error,replicates,note\n\
             0,blocks.0,variance,2,0.5,8,x\n\
             0,blocks.0,second_moment,5,,,\n\
             0,blocks.0,cross_product,3,0.5,,\n\
             0,blocks.0,mean,,,,\n\
             0,blocks.0.ffn.in.weight,weight_grad_second_moment,1,1,4,\n",
        )
        .unwrap();
        assert_eq!(rows.len(), 4);
        close(rows[0].relative_error, 0.5);
        close(rows[0].z, -2.0);
        assert_eq!(rows[0].replicates, Some(8));
        // Predicted 3 + 1² and 0.5·3 + 1².
        close(rows[1].relative_error, -0.2);
        assert_eq!(rows[1].z, None);
        close(rows[2].relative_error, -0.1);
        close(rows[2].z, 1.0);
        close(rows[3].relative_error, 1.0);
    }

    #[test]
    fn blanks_repeat_the_line_above() {
        let text = "group,case,site,quantity,observed,std_error,replicates\n\
                    pre,one,blocks.0,variance,2,0.5,8\n\
                    ,,,mean,1,,\n\
                    ,two,blocks.1,,3,,4\n";
        let seen = read(text.as_bytes(), ["group", "case"]).unwrap();
        let told: Vec<_> = seen
            .iter()
            .map(|([group, case], seen)| (&**group, &**case, &*seen.site, seen.quantity.name(), seen.replicates))
            .collect();
        assert_eq!(told[1], ("pre", "one", "blocks.0", "mean", Some(8)));
        assert!(seen[1].1.cell.std_error.value().is_nan());
        assert_eq!(told[2], ("pre", "two", "blocks.1", "mean", Some(4)));
        assert_eq!(message("site,quantity,observed,std_error\n,variance,1,\n"), "line 2: the network has no site ``");
    }

    #[test]
    fn errors_name_line_expected_got_and_the_nearest() {
        let header = "site,quantity,observed,std_error\n";
        let got = message(&format!("{header}block.0,variance,1,0\n"));
        assert_eq!(got, "line 2: the network has no site `block.0`; did you mean blocks.0?");
        let got = message(&format!("{header}blocks.0,varience,1,0\n"));
        assert_eq!(got, "line 2: quantity: expected a quantity such as variance, got `varience`");
        let got = message(&format!("{header}blocks.0,variance,1,0\nblocks.0,mean,one,0\n"));
        assert_eq!(got, "line 3: observed: expected a number, got `one`");
        assert!(message(&format!("{header}blocks.0,variance,1,-1\n")).contains("not negative"));
        assert!(message(&format!("{header}blocks.0,grad_variance,1,1\n")).contains("nothing is predicted"));
        assert!(message("site,quantity,observed\n").contains("std_error is missing"));
        assert!(message(header).contains("got none"));
        assert!(message(&format!("{header}blocks.0\n")).starts_with("line 2: "));
    }

    #[test]
    fn numbers_beyond_f64_are_read() {
        assert!((number("1.5e-20000").unwrap().ln_abs() - (1.5f64.ln() - 2e4 * LN_10)).abs() < 1e-9);
        assert_eq!(number("0").unwrap(), Number::ZERO);
        assert_eq!((number("inf"), number("nan"), number("x")), (None, None, None));
    }

    #[test]
    fn what_is_predicted_of_raw_moments() {
        let table = predicted();
        let value = |quantity: Compared| quantity.value(&table.sites[0]).map(|number| number.value());
        close(value(Compared::SecondMoment), 4.0);
        close(value(Compared::CrossProduct), 2.5);
        assert_eq!(value(Compared::Site(Quantity::GradVariance)), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = compared(&text);
            let _ = compared(&format!("site,quantity,observed,std_error\nblocks.0,variance,{text},{text}\n"));
        }
    }
}
