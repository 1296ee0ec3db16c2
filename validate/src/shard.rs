//! Parts of a run, for several machines.

use std::{fmt, str::FromStr};

/// One of several parts of a run: the records whose index has a certain remainder modulo the number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The remainder, from 0.
    remainder: usize,
    count: usize,
}

impl Shard {
    /// Returns true if record `index` belongs to this part.
    pub fn has(self, index: usize) -> bool {
        index % self.count == self.remainder
    }
}

/// The name of a part in names of files, counted from 1: `2-of-4`.
impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-of-{}", self.remainder + 1, self.count)
    }
}

/// Parses `2/4` as the second of four parts.
impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((number, count)) if (1..=count).contains(&number) => Ok(Self { remainder: number - 1, count }),
            _ => Err(format!("expected a part such as 2/4, from 1/4 to 4/4, got {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole() {
        let shards: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().expect("a part")).collect();
        for index in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(index)).count(), 1);
        }
        assert_eq!(shards[1].to_string(), "2-of-3");
        for wrong in ["", "2", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
