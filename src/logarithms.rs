//! Sums of numbers that are carried as logarithms.

/// Returns ln Σ e^x; −∞ without terms.
pub(crate) fn ln_sum(terms: impl IntoIterator<Item = f64, IntoIter: Clone>) -> f64 {
    let terms = terms.into_iter();
    let largest = terms.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + terms.map(|term| (term - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_numbers() {
        approx::assert_relative_eq!(ln_sum([2.0_f64.ln(), 3.0_f64.ln(), 5.0_f64.ln()]), 10.0_f64.ln(), epsilon = 1e-15);
        approx::assert_relative_eq!(ln_sum([5000.0, 5000.0]), 5000.0 + 2.0_f64.ln());
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(ln_sum([]) < f64::MIN);
        assert!(ln_sum([f64::NEG_INFINITY; 2]) < f64::MIN);
    }
}
