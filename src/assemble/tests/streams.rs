//! The beginnings and ends of streams, their inputs, and encoders with decoders.

use sigprop_stack::{EmbeddingTerm, Ids, Mask, Op, Source, Stream, check};

use super::layouts::{attention, checked, names};
use super::*;
use crate::architecture::{EmbeddingProjection, Stem};
use crate::assemble::StreamName;
use crate::verdict::Shape;

/// The nodes in `embeddings`, and the number of terms of the source.
fn entrance(stream: &Stream) -> (String, usize) {
    let terms = match &stream.source {
        Source::Embedding(embedding) => embedding.terms.len(),
        Source::Gaussian(_) => 0,
    };
    (paths(&stream.body[..1])[1..].join(" ").replace("embeddings.", ""), terms)
}

#[test]
fn positions_come_behind_a_scaled_or_projected_token_embedding() {
    let stream = |architecture: &Architecture, run: &Run| checked(architecture, run).streams.remove(0);
    let plain = Architecture { token_types: 2, embedding_norm: true, embedding_dropout: Some(0.1), ..small() };
    assert_eq!(entrance(&stream(&plain, &TRAIN)), ("norm dropout".to_owned(), 3));
    assert_eq!(entrance(&stream(&plain, &Run::default())), ("norm".to_owned(), 3));
    let scaled = Architecture { embedding_scale: 8f64.sqrt(), ..plain.clone() };
    assert_eq!(entrance(&stream(&scaled, &TRAIN)), ("scale position token_type norm dropout".to_owned(), 1));
    let projected = Architecture { embedding_width: Some(6), norm_placement: NormPlacement::Post, ..small() };
    let got = stream(&projected, &TRAIN);
    assert_eq!(entrance(&got), ("projection position".to_owned(), 1));
    assert_eq!(paths(&got.body[3..]), ["final_norm", "final_norm.projection"]);
    let behind = Architecture { embedding_width: Some(6), embedding_projection: EmbeddingProjection::Sum, ..plain };
    assert_eq!(entrance(&stream(&behind, &TRAIN)), ("norm dropout projection".to_owned(), 3));
    assert_eq!(paths(&stream(&behind, &TRAIN).body[3..]), ["final_norm"]);
    let ended = Architecture { final_norm: Some(true), final_dropout: 0.1, ..projected };
    let inside = ["final_norm", "final_norm.norm", "final_norm.projection", "final_norm.dropout"];
    assert_eq!(paths(&stream(&ended, &TRAIN).body[3..]), inside);
}

#[test]
fn stems_embed_patches_and_frames() {
    let patches = Stem::Patches {
        patch_width: 12,
        class_token: true,
        distillation_token: false,
        registers: 0,
        bias: true,
        norm: false,
    };
    let stack = checked(&Architecture { stem: Some(patches), ..small() }, &TRAIN);
    assert_eq!(Shape::of(&stack), Shape { width: 8, seq_len: 16 });
    let got = &stack.streams[0];
    assert_eq!((got.seq_len, got.source.width()), (15, 12));
    assert_eq!(entrance(got).0, "patches class_token position");
    let Stem::Patches { patch_width, .. } = patches else { unreachable!("patches") };
    let registers = Stem::Patches {
        patch_width,
        class_token: true,
        distillation_token: false,
        registers: 2,
        bias: true,
        norm: false,
    };
    let got = checked(&Architecture { stem: Some(registers), ..small() }, &TRAIN);
    assert_eq!(got.streams[0].seq_len, 13);
    // The token that is prepended last is the first.
    assert_eq!(entrance(&got.streams[0]).0, "patches register_1 register_0 class_token position");
    let audio = Architecture { stem: Some(Stem::Audio { n_mels: 5 }), positions: Positions::Sinusoidal, ..small() };
    let stack = checked(&audio, &TRAIN);
    assert_eq!(Shape::of(&stack), Shape { width: 8, seq_len: 16 });
    let got = &stack.streams[0];
    assert_eq!((got.seq_len, got.source.width()), (32, 5));
    assert_eq!(entrance(got).0, "conv1 activation1 conv2 activation2 position");
    assert_eq!(
        message(&audio, "hf", &Input::Uniform),
        "input must be a correlation between tokens, for a stem reads patches or frames, got token ids"
    );
}

/// A network like T5.
pub(super) fn two_streams() -> Architecture {
    let side = Architecture {
        norm: Some(NormChoice::Rmsnorm),
        positions: Positions::Relative,
        biases: false,
        dropout: 0.1,
        activation_dropout: 0.1,
        final_dropout: 0.1,
        attention_scale: Some(1.0),
        ..small()
    };
    let decoder = Architecture { causal: true, seq_len: 5, hf_init: None, ..side.clone() };
    Architecture { decoder: Some(Box::new(decoder)), shared_embedding: true, ..side }
}

#[test]
fn a_decoder_reads_the_encoder() {
    let stack = checked(&two_streams(), &TRAIN);
    let [encoder, decoder] = &stack.streams[..] else { panic!("two streams") };
    assert_eq!((encoder.name.as_str(), decoder.name.as_str(), stack.gradient.stream), ("encoder", "decoder", 1));
    assert_eq!((encoder.seq_len, decoder.seq_len), (16, 5));
    let cross = attention(decoder, 0, "cross_attention");
    assert_eq!((cross.memory, cross.mask, cross.bias), (Some(0), Mask::FULL, None));
    assert_eq!(attention(decoder, 0, "attention").mask, Mask::CAUSAL);
    let table = |stream: &Stream| match &stream.source {
        Source::Embedding(embedding) => embedding.terms[0].table().expect("a table").name.clone(),
        Source::Gaussian(_) => String::new(),
    };
    assert_eq!(
        (table(encoder), table(decoder)),
        ("encoder.embeddings.token".into(), "encoder.embeddings.token".into())
    );
    let json = serde_json::to_string(&stack).unwrap();
    for name in ["decoder.relative_bias", "encoder.relative_bias", "decoder.blocks.1.cross_attention.output.weight"] {
        assert!(json.contains(&format!("\"{name}\"")), "{name} is missing");
    }
    let at_encoder = Run { loss_at: Some(StreamName::Encoder), ..Run::default() };
    assert_eq!(checked(&two_streams(), &at_encoder).gradient.stream, 0);
    // BART-like.
    let post = |architecture: Architecture| Architecture {
        norm_placement: NormPlacement::Post,
        positions: Positions::Learned,
        embedding_norm: true,
        ..architecture
    };
    let bart = post(two_streams());
    let decoder = bart.decoder.clone().map(|decoder| Box::new(post(*decoder)));
    let stack = checked(&Architecture { decoder, ..bart }, &TRAIN);
    let Op::Chain(block) = &stack.streams[1].body[1].op else { panic!("a block is a chain") };
    let expected = ["attention", "attention_norm", "cross_attention", "cross_attention_norm", "ffn", "ffn_norm"];
    assert_eq!(names(block), expected);
}

#[test]
fn audio_and_text() {
    let text = Architecture { causal: true, ..small() };
    let whisper = Architecture {
        stem: Some(Stem::Audio { n_mels: 5 }),
        positions: Positions::Sinusoidal,
        decoder: Some(Box::new(text)),
        ..small()
    };
    let stack = checked(&whisper, &TRAIN);
    assert!(matches!(&stack.streams[1].source, Source::Embedding(_)));
    let run = Run { decoder_input: Some(Input::Uniform), ..Run::default() };
    checked(&whisper, &run);
}

#[test]
fn given_ids_are_the_source() {
    let tokens = |sequences: &[&[u32]]| Input::Tokens { sequences: sequences.iter().map(|ids| ids.to_vec()).collect() };
    let stack = assembled(&small(), "hf", &tokens(&[&[1, 2, 49], &[0, 0, 7]]), &Run::default()).stack;
    assert_eq!(check(&stack), Ok(()));
    let stream = &stack.streams[0];
    assert_eq!(stream.seq_len, 3);
    let Source::Embedding(embedding) = &stream.source else { panic!("ids are embedded") };
    assert!(matches!(&embedding.ids, Ids::Given(given) if given.sequences.len() == 2));
    assert!(matches!(embedding.terms[1], EmbeddingTerm::LearnedPosition { .. }));
    for (sequences, expected) in [
        ([[1, 50].as_slice(), &[0, 0]], "tokens must be ids below vocab_size = 50, got 50"),
        ([&[1, 2], &[3]], "tokens must be sequences of one length, got 1 ids and 2"),
        ([&[], &[]], "tokens must be at least one id, got none"),
    ] {
        assert_eq!(message(&small(), "hf", &tokens(&sequences)), expected);
    }
    let got = message(&two_streams(), "hf", &tokens(&[&[1]]));
    assert_eq!(got, "the decoder's input must be given together with the tokens of the encoder, got nothing");
}
