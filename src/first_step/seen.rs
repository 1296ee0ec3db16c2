//! The rows of a table of token embeddings that have a gradient: the rows of ids that occur.

use std::collections::{HashMap, HashSet};

use sigprop_stack::{EmbeddingTerm, Ids, Source, Stack, Stream};

use crate::head::Head;

/// Returns the share of rows that a sequence uses, by name of the table. A table that the head shares is left out.
pub(super) fn seen(stack: &Stack, head: Option<&Head>) -> HashMap<String, f64> {
    let mut shares = HashMap::new();
    for stream in &stack.streams {
        let Source::Embedding(embedding) = &stream.source else { continue };
        for term in &embedding.terms {
            let EmbeddingTerm::Token { table } = term else { continue };
            if head.is_none_or(|head| head.weight.name != table.name) {
                // Streams that share a table have independent ids.
                let unseen = shares.get(&table.name).map_or(1.0, |seen: &f64| 1.0 - seen);
                shares.insert(table.name.clone(), 1.0 - unseen * (1.0 - share(&embedding.ids, stream)));
            }
        }
    }
    shares
}

/// Returns the expected share of the vocabulary that occurs in one sequence of a stream.
fn share(ids: &Ids, stream: &Stream) -> f64 {
    let vocabulary = ids.vocab_size() as f64;
    let count = match ids {
        Ids::PowerLaw(law) => {
            law.probabilities().iter().map(|p| -(stream.seq_len as f64 * (-p).ln_1p()).exp_m1()).sum::<f64>()
        }
        Ids::Given(given) => {
            let distinct = |ids: &Vec<u32>| ids.iter().collect::<HashSet<_>>().len() as f64;
            given.sequences.iter().map(distinct).sum::<f64>() / given.sequences.len() as f64
        }
    };
    count / vocabulary
}
