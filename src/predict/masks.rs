//! Stochastic depth where a mask decides how long the stream is: sequences that keep a branch and those that drop it are walked
//! apart, and averaged.
//!
//! A mask that is not told apart is a variance V of lengths to the rule of sums (`src/mean_field/sum.rs`), which holds while it is
//! small. A branch behind small embeddings is most of the stream: where it is dropped, norms stretch what is left, and few
//! sequences have much of the gradients. Told apart are masks of
//!
//! ```text
//! V > 0.01 · walks allowed/walks left
//! ```
//!
//! and of sequences that are not too few to be seen at all. A walk keeps every branch that it comes to tell apart, and leaves one
//! that drops it to be taken later, so that nothing is walked twice.
//!
//! # Sampled
//!
//! Six blocks of width 128, 32 tokens (6000 networks), Xavier, p = 0.2: nine gradients in ten within 4 %, of weights 3 %, hardly
//! more than noise; 47 and 69 % with none told apart (docs/accuracy.md).

/// What is kept and what is dropped on a walk.
#[derive(Clone)]
struct Way {
    /// Site and index of every branch that is told apart, and whether it is kept.
    branches: Vec<(String, usize, bool)>,
    /// The probability of all that.
    weight: f64,
}

/// The masks that are told apart on this walk, and those of walks to come.
pub(crate) struct Masks {
    way: Way,
    open: Vec<Way>,
    /// How many walks there may be, and how many more.
    most: usize,
    room: usize,
}

impl Masks {
    /// Tells masks apart on up to `walks` walks.
    pub(crate) fn told_on(walks: usize) -> Self {
        Self { way: Way { branches: Vec::new(), weight: 1.0 }, open: Vec::new(), most: walks, room: walks - 1 }
    }

    /// The probability of what is kept and dropped on this walk.
    pub(crate) fn weight(&self) -> f64 {
        self.way.weight
    }

    /// Goes on to the most probable walk to come, if there is one.
    pub(crate) fn next(&mut self) -> bool {
        let heaviest = (0..self.open.len()).max_by(|&a, &b| self.open[a].weight.total_cmp(&self.open[b].weight));
        if let Some(place) = heaviest {
            self.way = self.open.remove(place);
        }
        heaviest.is_some()
    }

    /// The branches of the sum at `path` whose masks this walk is conditioned on, and whether each is kept.
    pub(crate) fn settled<'m>(&'m self, path: &'m str) -> impl Iterator<Item = (usize, bool)> + 'm {
        self.way.branches.iter().filter(move |(site, ..)| site == path).map(|&(_, index, kept)| (index, kept))
    }

    /// Whether from here on branch `index` of the sum at `path`, which is dropped with probability `rate` and then strays ln |x|²
    /// by this `variance`, is told apart: this walk keeps it, and one to come drops it.
    pub(crate) fn tell(&mut self, path: &str, index: usize, rate: f64, variance: f64) -> bool {
        /// Told apart while there is room.
        const SMALLEST: f64 = 0.01;
        /// No walk is for fewer sequences.
        const RAREST: f64 = 1e-5;
        let dropped = rate * self.way.weight;
        if variance * self.room as f64 <= SMALLEST * self.most as f64 || dropped < RAREST {
            return false;
        }
        self.room -= 1;
        let mut other = self.way.clone();
        other.branches.push((path.to_owned(), index, false));
        self.open.push(Way { weight: dropped, ..other });
        self.way.branches.push((path.to_owned(), index, true));
        self.way.weight -= dropped;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Masks;

    /// Two branches of the rates 0.1 and 0.2: with both kept 0.72, without the first 0.1 · 0.8, and so on; the heaviest first.
    #[test]
    fn every_way_is_walked_once_with_its_probability() {
        let mut masks = Masks::told_on(8);
        let mut weights = Vec::new();
        loop {
            for (path, rate) in [("a", 0.1), ("b", 0.2)] {
                let known = masks.way.branches.iter().any(|(site, ..)| site == path);
                assert!(known || masks.tell(path, 1, rate, 1.0));
            }
            weights.push(masks.weight());
            if !masks.next() {
                break;
            }
        }
        for (weight, expected) in weights.iter().zip([0.72, 0.18, 0.08, 0.02]) {
            approx::assert_relative_eq!(*weight, expected, max_relative = 1e-12);
        }
        assert_eq!(weights.len(), 4);
    }

    #[test]
    fn what_strays_little_and_what_is_rare_is_not_told_apart() {
        let mut masks = Masks::told_on(2);
        assert!(!masks.tell("a", 1, 0.1, 0.01));
        assert!(!masks.tell("a", 1, 1e-6, 1.0));
        assert!(masks.tell("a", 1, 0.1, 0.03));
        assert!(!masks.tell("b", 1, 0.1, 1e9), "no room is left");
    }
}
