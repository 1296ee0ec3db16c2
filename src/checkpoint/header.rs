//! The header of a file, which lists its tensors and their places.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{CheckpointError, Entry, foreign};

/// The length in bytes above which headers are refused, as in the library that writes them.
const MAX_HEADER: u64 = 100_000_000;

/// The number format of the entries of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE half precision.
    F16,
    /// The upper half of an IEEE single-precision float (bfloat16).
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision, read as single.
    F64,
    /// Eight bits, four of them for the exponent.
    F8E4M3,
    /// Eight bits, five of them for the exponent.
    F8E5M2,
    /// Any other type of safetensors; not measured.
    Other(String),
}

impl Dtype {
    fn parse(name: &str) -> Option<(Self, u64)> {
        let bits = match name {
            "F16" => return Some((Self::F16, 16)),
            "BF16" => return Some((Self::Bf16, 16)),
            "F32" => return Some((Self::F32, 32)),
            "F64" => return Some((Self::F64, 64)),
            "F8_E4M3" => return Some((Self::F8E4M3, 8)),
            "F8_E5M2" => return Some((Self::F8E5M2, 8)),
            "F4" => 4,
            "F6_E2M3" | "F6_E3M2" => 6,
            "BOOL" | "U8" | "I8" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
            "I16" | "U16" => 16,
            "I32" | "U32" => 32,
            "I64" | "U64" | "C64" => 64,
            _ => return None,
        };
        Some((Self::Other(name.to_owned()), bits))
    }

    /// Returns the name of the type in the safetensors format.
    pub fn name(&self) -> &str {
        match self {
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E5M2 => "F8_E5M2",
            Self::Other(name) => name,
        }
    }
}

/// A tensor as described in the header.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Returns the tensors of a file, from its header.
pub(super) fn entries(path: &Path) -> Result<Vec<Entry>, CheckpointError> {
    let io = || CheckpointError::io(path);
    let mut file = File::open(path).map_err(io())?;
    let size = file.metadata().map_err(io())?.len();
    let wrong = |expected: &str, got: String| CheckpointError::format(path, expected, &got);
    if size < 8 {
        return Err(wrong("a safetensors file, of 8 bytes at least", format!("{size} bytes")));
    }
    let mut beginning = Vec::new();
    file.by_ref().take(16).read_to_end(&mut beginning).map_err(io())?;
    if let Some(error) = foreign::of_file(path, &beginning) {
        return Err(error);
    }
    file.rewind().map_err(io())?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(io())?;
    let length = u64::from_le_bytes(length);
    let room = (size - 8).min(MAX_HEADER);
    if length > room {
        let expected = format!("a safetensors file, whose header fits into {room} bytes");
        return Err(wrong(&expected, format!("a header of {length} bytes; is it one, and is it whole?")));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(io())?;
    let Header(tensors) =
        serde_json::from_slice(&header).map_err(|error| wrong("tensors as JSON in the header", error.to_string()))?;
    located(path, tensors, 8 + length, size)
}

/// Returns the tensors with their places, after checking that they fill the file.
fn located(path: &Path, tensors: BTreeMap<String, Raw>, data: u64, size: u64) -> Result<Vec<Entry>, CheckpointError> {
    let mut tensors: Vec<(String, Raw)> = tensors.into_iter().collect();
    tensors.sort_by_key(|(_, raw)| raw.data_offsets);
    let mut end = 0;
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, Raw { dtype, shape, data_offsets: [first, last] }) in tensors {
        let wrong = |expected: String, got: String| CheckpointError::tensor(path, &name, expected, got);
        let Some((dtype, bits)) = Dtype::parse(&dtype) else {
            return Err(wrong("a dtype of safetensors".to_owned(), format!("{dtype:?}")));
        };
        let bytes = bytes(&shape, bits)
            .ok_or_else(|| wrong("a number of whole bytes below 2^61".to_owned(), format!("the shape {shape:?}")))?;
        if first != end {
            return Err(wrong(format!("data from {end} on, where the tensor before it ends"), first.to_string()));
        }
        if last.checked_sub(first) != Some(bytes) {
            let got = format!("data from {first} to {last}");
            return Err(wrong(format!("{bytes} bytes for {} {shape:?}", dtype.name()), got));
        }
        if last > size - data {
            let got = format!("{} bytes of data in the file; is it whole?", size - data);
            return Err(wrong(format!("data up to {last}"), got));
        }
        let shape = shape.into_iter().map(|axis| axis as usize).collect();
        entries.push(Entry {
            path: path.to_owned(),
            name,
            dtype,
            shape,
            offset: data + first,
            scales: None,
            added: None,
        });
        end = last;
    }
    if end != size - data {
        let expected = format!("{end} bytes of data, as the header says");
        return Err(CheckpointError::format(path, &expected, &format!("{} bytes", size - data)));
    }
    Ok(entries)
}

/// Returns the size of a tensor in bytes. `None` if it is not a whole number of bytes, or if the product of its axes
/// overflows, even without axes of 0.
fn bytes(shape: &[u64], bits: u64) -> Option<u64> {
    let product = shape.iter().try_fold(bits, |bits, &axis| bits.checked_mul(axis.max(1)))?;
    let bits = if shape.contains(&0) { 0 } else { product };
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// The tensors by name; a name may occur only once.
struct Header(BTreeMap<String, Raw>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut tensors = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let raw =
                        map.next_value().map_err(|error| A::Error::custom(format!("tensor {name:?}: {error}")))?;
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("tensor {name:?}: expected once, got twice")));
                    }
                    tensors.insert(name, raw);
                }
                Ok(Header(tensors))
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}
