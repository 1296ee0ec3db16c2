//! Narrow Post-LN encoders with few tokens, where how alike the tokens of one network happen to be decides how large they
//! are: a term of order 1/width that stays with the stream. (What gradients make of it: docs/accuracy.md.)

use sigprop::agreement::{Compared, compare};
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::Quantity;

use crate::support::sample_stream;

const REPLICATES: usize = 3000;
/// α of 6e-5 per number, of which there are 8. Without what networks stray together, they were 3 to 9 off.
const LARGEST_Z: f64 = 4.0;

#[test]
fn tokens_that_are_alike_are_large() {
    let text = "n_layers = 3\nd_model = 64\nn_heads = 4\nseq_len = 16\nvocab_size = 1000\nnorm_placement = 'post'";
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    for scheme in ["xavier", "gains:qk=0.01,value=1,ffn=0,embedding=1,ratio=1"] {
        let scheme = Scheme::parse(scheme).expect("known");
        let stack = assemble(&architecture, &scheme, &Input::Correlation(0.2), &Run::default()).expect("a stack").stack;
        let predicted = predict(&stack, Sites::Stream).expect("a prediction");
        let sampled = sample_stream(&stack, REPLICATES).table;
        let mut seen = 0;
        for row in compare(&predicted.table, &sampled, REPLICATES) {
            let Compared::Site(Quantity::TokenCorrelation) = row.quantity else { continue };
            let Some(z) = row.z else { continue };
            seen += 1;
            assert!(z.abs() < LARGEST_Z, "{scheme}: {row:?}");
        }
        assert!(seen >= 4, "{seen} numbers");
    }
}
