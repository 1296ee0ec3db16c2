//! NumPy arrays: whole numbers, little endian, in C order.
//!
//! ```text
//! \x93NUMPY  major  minor  length of the header (2 bytes, from version 2 on 4)  header  data
//! header: {'descr': '<i4', 'fortran_order': False, 'shape': (2, 128), }
//! ```

use super::Sequences;

/// An integer type of `size` bytes.
struct Integer {
    signed: bool,
    size: usize,
}

struct Header {
    integer: Integer,
    shape: Vec<usize>,
}

/// Reads the sequences along the last axis.
pub(super) fn parse(bytes: &[u8]) -> Result<Sequences, String> {
    let (header, data) = split(bytes)?;
    let Header { integer, shape } = Header::parse(header)?;
    let Some(&length) = shape.last() else {
        return Err("shape: expected an array of at least one axis, got ()".to_owned());
    };
    let count = shape.iter().try_fold(1_usize, |count, &axis| count.checked_mul(axis));
    let expected = count.and_then(|count| count.checked_mul(integer.size));
    if expected != Some(data.len()) {
        let expected = expected.map_or("more than there can be".to_owned(), |bytes| bytes.to_string());
        let got = data.len();
        return Err(format!("data: expected {expected} bytes for the shape {shape:?}, got {got}; is the file whole?"));
    }
    if data.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<u32> = data
        .chunks_exact(integer.size)
        .enumerate()
        .map(|(index, bytes)| {
            let value = integer.read(bytes);
            u32::try_from(value).map_err(|_| {
                let (sequence, place) = (index / length + 1, index % length + 1);
                format!("sequence {sequence}, id {place}: expected an id from 0 to {}, got {value}", u32::MAX)
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(ids.chunks_exact(length).map(<[u32]>::to_vec).collect())
}

impl Integer {
    fn read(&self, bytes: &[u8]) -> i128 {
        let raw = bytes.iter().rev().fold(0, |value: i128, &byte| (value << 8) | i128::from(byte));
        let sign = 1 << (8 * self.size - 1);
        if self.signed && raw >= sign { raw - 2 * sign } else { raw }
    }

    /// Parses a type code such as `<i4` or `|u1`.
    fn parse(code: &str) -> Result<Self, String> {
        let error = |hint: &str| {
            Err(format!("descr: expected whole numbers, little endian, such as '<i4', got '{code}'; {hint}"))
        };
        let (order, kind) = code.split_at_checked(1).unwrap_or_default();
        let size = kind.get(1..).and_then(|size| size.parse().ok()).filter(|size| [1, 2, 4, 8].contains(size));
        let signed = match kind.as_bytes().first() {
            Some(b'i') => true,
            Some(b'u') => false,
            Some(_) | None => return error("ids.astype('<i4') makes whole numbers of others"),
        };
        match (order, size) {
            ("<", Some(size)) => Ok(Self { signed, size }),
            ("|", Some(1)) => Ok(Self { signed, size: 1 }),
            (_, _) => error("ids.astype('<i4') changes the order of the bytes"),
        }
    }
}

/// Returns the text of the header, and the bytes of the data after it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "the header: expected more bytes; is the file whole?".to_owned();
    let rest = bytes
        .strip_prefix(b"\x93NUMPY")
        .ok_or("byte 0: expected the magic of an array of numpy; np.save(file, ids) writes one")?;
    let (version, rest) = rest.split_at_checked(2).ok_or_else(cut)?;
    let width = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => return Err(format!("byte 6: expected version 1, 2 or 3 of the format, got {other}")),
    };
    let (length, rest) = rest.split_at_checked(width).ok_or_else(cut)?;
    let length = length.iter().rev().fold(0, |length: usize, &byte| (length << 8) | usize::from(byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = str::from_utf8(header).map_err(|_| "the header: expected text, got other bytes")?;
    Ok((header, data))
}

impl Header {
    fn parse(text: &str) -> Result<Self, String> {
        let code = value(text, "descr")?;
        let code = code.strip_prefix('\'').and_then(|code| code.split_once('\''));
        let Some((code, _)) = code else {
            return Err("descr: expected one type for all entries, got a list of fields".to_owned());
        };
        let integer = Integer::parse(code)?;
        if !value(text, "fortran_order")?.starts_with("False") {
            return Err("fortran_order: expected False; np.ascontiguousarray(ids) brings ids into C order".to_owned());
        }
        let shape = value(text, "shape")?;
        let axes = shape.strip_prefix('(').and_then(|shape| shape.split_once(')'));
        let (axes, _) = axes.ok_or_else(|| format!("shape: expected a tuple, got {shape}"))?;
        let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
        let shape = axes
            .map(|axis| axis.parse().map_err(|_| format!("shape: expected whole numbers, got {axis}")))
            .collect::<Result<_, _>>()?;
        Ok(Self { integer, shape })
    }
}

/// Returns the text that follows a key in the header.
fn value<'h>(header: &'h str, key: &str) -> Result<&'h str, String> {
    let (_, value) = header
        .split_once(&format!("'{key}':"))
        .ok_or_else(|| format!("the header: expected the key '{key}', got {header}"))?;
    Ok(value.trim_start())
}
