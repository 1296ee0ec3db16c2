//! Measurements of many networks in one file. A blank field repeats the line above.

use csv::{Reader, StringRecord};
use sigprop::agreement::Observation;
use sigprop::agreement::read_observations;

use super::path;

/// One network of a file, with its observations.
pub(super) struct Network {
    pub(super) case: String,
    /// Lines with a header, in the format that `--observed` reads.
    pub(super) text: String,
}

impl Network {
    /// Reads all networks of a file, in its order.
    pub(super) fn all(file: &str) -> Vec<Self> {
        let mut reader = Reader::from_path(path(file)).expect("a file of measurements");
        let header = reader.headers().expect("a header").clone();
        assert_eq!(header.get(0), Some("case"), "{file}");
        let mut networks: Vec<Self> = Vec::new();
        for record in reader.records() {
            let record: StringRecord = record.expect("a row");
            let mut fields: Vec<&str> = record.iter().collect();
            let case = fields.remove(0);
            if !case.is_empty() {
                let header: Vec<&str> = header.iter().skip(1).collect();
                networks.push(Self { case: case.to_owned(), text: header.join(",") + "\n" });
            }
            let network = networks.last_mut().expect("the first row names its case");
            network.text += &fields.join(",");
            network.text += "\n";
        }
        networks
    }

    pub(super) fn observations(&self) -> Vec<Observation> {
        read_observations(self.text.as_bytes()).expect("observations")
    }
}
