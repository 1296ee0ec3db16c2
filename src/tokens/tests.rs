use std::fs;

use super::{lists, npy, read_text, read_tokens, text::chunks};

/// Returns an array as NumPy writes it.
fn array(code: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{code}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let padding = 64 - (10 + header.len() + 1) % 64;
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap();
    [b"\x93NUMPY\x01\x00".as_slice(), &length.to_le_bytes(), header.as_bytes(), data].concat()
}

fn int32(shape: &str, ids: &[i32]) -> Vec<u8> {
    array("<i4", "False", shape, &ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>())
}

fn refused(bytes: &[u8]) -> String {
    npy::parse(bytes).unwrap_err()
}

#[test]
fn the_last_axis_of_an_array_is_the_sequence() {
    let two = vec![vec![1, 2, 3], vec![4, 5, 6]];
    assert_eq!(npy::parse(&int32("(2, 3)", &[1, 2, 3, 4, 5, 6])).unwrap(), two);
    assert_eq!(npy::parse(&int32("(2, 1, 3)", &[1, 2, 3, 4, 5, 6])).unwrap(), two);
    assert_eq!(npy::parse(&int32("(2,)", &[7, 8])).unwrap(), [[7, 8]]);
}

#[test]
fn all_widths_of_whole_numbers_are_read() {
    for (code, bytes) in [
        ("|u1", vec![200]),
        ("<u2", vec![200, 0]),
        ("<i2", vec![200, 0]),
        ("<u4", vec![200, 0, 0, 0]),
        ("<i8", vec![200, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(npy::parse(&array(code, "False", "(1,)", &bytes)).unwrap(), [[200]], "{code}");
    }
}

#[test]
fn arrays_that_hold_no_ids_say_what_was_expected() {
    assert!(refused(&int32("(2, 2)", &[0, 1, -1, 3])).starts_with("sequence 2, id 1: expected an id from 0"));
    assert!(refused(&int32("()", &[1])).contains("at least one axis"));
    assert!(refused(&int32("(3,)", &[1, 2])).contains("expected 12 bytes for the shape [3], got 8"));
    assert!(refused(&int32("(4294967296, 4294967296)", &[1])).contains("more than there can be"));
    assert!(refused(&int32("(-1,)", &[1])).contains("whole numbers, got -1"));
    assert!(refused(&array("<f4", "False", "(1,)", &[0; 4])).contains("got '<f4'"));
    assert!(refused(&array(">i4", "False", "(1,)", &[0; 4])).contains("order of the bytes"));
    assert!(refused(&array("<i4", "True", "(1, 1)", &[0; 4])).contains("ascontiguousarray"));
    assert!(refused(b"PK\x03\x04").contains("np.save"));
    assert!(refused(b"\x93NUMPY\x09\x00\x00\x00").contains("version"));
}

#[test]
fn a_cut_array_is_refused_wherever_it_was_cut() {
    let whole = int32("(1, 3)", &[1, 2, 3]);
    for length in 0..whole.len() {
        assert!(npy::parse(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn lists_of_ids() {
    assert_eq!(lists::csv(b"1, 2,3\n4,5,6\n").unwrap(), [[1, 2, 3], [4, 5, 6]]);
    assert!(lists::csv(b"a,b\n1,2\n").unwrap_err().contains("there is no header"));
    assert_eq!(lists::csv(b"1,2\n3,-4\n").unwrap_err(), "line 2, field 2: expected an id from 0, got `-4`");
    assert_eq!(lists::json(b"[1, 2]").unwrap(), [[1, 2]]);
    assert_eq!(lists::json(b"[[[1, 2]], [[3, 4]]]").unwrap(), [[1, 2], [3, 4]]);
    assert!(
        lists::json(b"[[1, 2.5]]").unwrap_err().starts_with("[0][1]: expected an id from 0 to 4294967295, got 2.5")
    );
    assert_eq!(lists::json(b"[[1], 2]").unwrap_err(), "[1]: expected an array, got 2");
    assert_eq!(lists::json(b"{}").unwrap_err(), "the document: expected an array, got an object");
    assert!(lists::json("[".repeat(10_000).as_bytes()).is_err());
}

#[test]
fn files_are_named_and_sequences_are_equally_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.csv");
    fs::write(&path, "1,2\n3\n").unwrap();
    let message = read_tokens(&path).unwrap_err().to_string();
    assert!(message.ends_with("ids.csv: sequence 2: expected 2 ids as in sequence 1, got 1"), "{message}");
    fs::write(&path, "").unwrap();
    assert!(read_tokens(&path).unwrap_err().message.contains("got none"));
    assert!(read_tokens(&folder.path().join("ids.txt")).unwrap_err().message.contains("--text"));
    assert!(read_tokens(&folder.path().join("none.npy")).unwrap_err().message.contains("cannot be read"));
}

#[test]
fn texts_are_cut_into_sequences() {
    assert_eq!(chunks(&[1, 2, 3, 4, 5], 2).unwrap(), [[1, 2], [3, 4]]);
    assert!(chunks(&[1], 2).unwrap_err().contains("at least 2 ids, one sequence, got 1"));
    let folder = tempfile::tempdir().unwrap();
    let (path, tokenizer) = (folder.path().join("book"), folder.path().join("tokenizer.json"));
    fs::write(&path, "ab\n\u{e9}").unwrap();
    assert_eq!(read_text(&path, None, 5).unwrap(), [[97, 98, 10, 195, 169]]);
    fs::write(&tokenizer, WORDS).unwrap();
    fs::write(&path, "to be or not to be").unwrap();
    assert_eq!(read_text(&path, Some(&tokenizer), 2).unwrap(), [[0, 1], [2, 3], [0, 1]]);
    fs::write(&path, b"to \xff").unwrap();
    assert!(read_text(&path, Some(&tokenizer), 2).unwrap_err().message.starts_with("byte 3: expected UTF-8"));
    fs::write(&tokenizer, "{}").unwrap();
    fs::write(&path, "to").unwrap();
    assert!(read_text(&path, Some(&tokenizer), 1).unwrap_err().to_string().contains("expected a tokenizer.json"));
}

/// A tokenizer of four words.
const WORDS: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1, "or": 2, "not": 3}, "unk_token": "not"}
}"#;

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = (npy::parse(&bytes), lists::csv(&bytes), lists::json(&bytes));
        let with_magic = [b"\x93NUMPY\x01\x00".as_slice(), &bytes].concat();
        let _ = npy::parse(&with_magic);
    }

    #[test]
    fn no_header_panics(code in "[<>|]?[a-z]?[0-9]{0,3}", order in "False|True|.{0,4}", shape in "\\(?[-0-9, ]{0,40}\\)?") {
        let _ = npy::parse(&array(&code, &order, &shape, &[1; 16]));
    }
}
