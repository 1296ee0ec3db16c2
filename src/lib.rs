//! What theory *predicts* about a network at initialisation.
