//! Quantised checkpoints of eight-bit floats times their scales. Other methods are recognised but not read.
//!
//! # Formula
//!
//! ```text
//! W_ij = q_ij s_⌊i/a⌋⌊j/b⌋
//! ```
//!
//! where q is a tensor of F8_E4M3 or F8_E5M2, s the tensor of its scales, `NAME_scale_inv` or `NAME_scale`, and a × b
//! the block that shares a scale. A single scale applies to the whole tensor, one scale per row to its row. The block
//! size a must agree with the number of scales, ⌈rows/a⌉. It is the size in the config next to the checkpoint, else
//! 128, else rows over scales if that is a whole number.
//!
//! # Source
//!
//! deepseek-ai/DeepSeek-V3, `inference/kernel.py`, `weight_dequant`; compressed-tensors and FBGEMM in transformers
//! name scales `weight_scale`. Both multiply, in spite of the name `scale_inv`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{CheckpointError, Dtype, Entry};

/// Endings of the names of scales of weights.
const SCALES: [&str; 3] = ["_scale_inv", "_scales_inv", "_scale"];
/// Endings of the names of scales of activations, keys and values, which weights do not depend on.
const ACTIVATIONS: [&str; 7] =
    [".input_scale", ".activation_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale", ".input_scale_ub"];
/// The block size of most quantised checkpoints.
const USUAL_BLOCK: usize = 128;

/// The scales of a quantised tensor. Each scale multiplies one block of entries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scales {
    /// The tensor that holds the scales.
    entry: Entry,
    /// The sizes of the axes of the scales, as many as the scaled tensor has.
    shape: Vec<usize>,
    /// The size of a block along each axis.
    block: Vec<usize>,
}

/// A quantisation method that is not read.
struct Method {
    name: &'static str,
    /// Parts of tensor names that identify the method.
    marks: &'static [&'static str],
}

/// The quantisation methods that are recognised; the first match counts. Names of AWQ tensors are those of GPTQ without
/// `g_idx`.
const METHODS: [Method; 7] = [
    Method { name: "bitsandbytes (4 bits)", marks: &[".quant_state.bitsandbytes__"] },
    Method { name: "bitsandbytes (8 bits)", marks: &[".SCB"] },
    Method { name: "GPTQ", marks: &[".g_idx"] },
    Method { name: "AWQ", marks: &[".qweight"] },
    Method { name: "compressed-tensors (packed integers)", marks: &[".weight_packed"] },
    Method { name: "NVFP4", marks: &[".weight_scale_2"] },
    Method { name: "MXFP4", marks: &["_proj_blocks"] },
];

/// Removes the tensors that hold scales, and attaches them to the tensors that they scale.
pub(super) fn with_scales(path: &Path, entries: Vec<Entry>) -> Result<Vec<Entry>, CheckpointError> {
    refuse_packed(path, &entries)?;
    if !entries.iter().any(|entry| entry.dtype.is_eight_bits()) {
        return Ok(entries);
    }
    let side = block_of_config(path);
    let names: BTreeSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let scaled = |name: &str| SCALES.iter().find_map(|end| names.get(name.strip_suffix(end)?).cloned());
    let (mut rest, mut scales) = (Vec::new(), HashMap::new());
    for entry in entries {
        match scaled(&entry.name) {
            Some(name) => drop(scales.insert(name, entry)),
            None if ACTIVATIONS.iter().any(|end| entry.name.ends_with(end)) => {}
            None => rest.push(entry),
        }
    }
    for entry in rest.iter_mut().filter(|entry| entry.dtype.is_eight_bits()) {
        let found = scales.remove(&entry.name).map(|scales| Scales::new(entry, scales, side.as_deref()));
        entry.scales = found.transpose()?.map(Box::new);
    }
    Ok(rest)
}

/// Returns an error if the tensors hold packed codes in place of weights, as some quantisation methods store them.
fn refuse_packed(path: &Path, entries: &[Entry]) -> Result<(), CheckpointError> {
    let marked = |method: &'static Method| {
        let has = |entry: &&Entry| method.marks.iter().any(|mark| entry.name.contains(mark));
        entries.iter().find(has).map(|entry| (method.name, entry))
    };
    let Some((mut method, entry)) = METHODS.iter().find_map(marked) else { return Ok(()) };
    if method == "GPTQ" && quantization(path).is_some_and(|config| config["quant_method"] == "awq") {
        method = "AWQ";
    }
    let got = format!("weights quantised by {method}, whose codes are no weights (tensor {:?})", entry.name);
    let advice = "dequantise the model with its library (model.dequantize() in transformers, where the method has it) and \
                  save it with save_pretrained(TARGET, safe_serialization=True), or inspect the checkpoint it was \
                  quantised from";
    Err(CheckpointError::Foreign { path: path.to_owned(), got, advice })
}

/// Returns the quantisation in the config next to a checkpoint; `None` if there is none.
fn quantization(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path.parent()?.join("config.json")).ok()?;
    let mut config: Value = serde_json::from_str(&text).ok()?;
    config.get_mut("quantization_config").map(Value::take)
}

/// Returns the sizes of a block from the config, one per axis, the last axis last; `None` if the config has none.
fn block_of_config(path: &Path) -> Option<Vec<usize>> {
    let config = quantization(path)?;
    config["weight_block_size"].as_array()?.iter().map(|side| usize::try_from(side.as_u64()?).ok()).collect()
}

impl Scales {
    /// Fits scales to the axes of a tensor.
    fn new(entry: &Entry, scales: Entry, side: Option<&[usize]>) -> Result<Self, CheckpointError> {
        let wrong = |expected: String| {
            let got = format!("{} {:?}", scales.dtype.name(), scales.shape);
            CheckpointError::tensor(&scales.path, &scales.name, expected, got)
        };
        if !scales.is_float() {
            return Err(wrong("scales of F64, F32, F16, BF16 or an F8".to_owned()));
        }
        let axes = entry.shape.len();
        let is_one = scales.shape.iter().all(|&axis| axis == 1);
        let mut shape = if is_one { Vec::new() } else { scales.shape.clone() };
        shape.resize(shape.len().max(axes), 1);
        // The sides in the config belong to the last axes.
        let given = |axis: usize| side.and_then(|side| side.get((axis + side.len()).checked_sub(axes)?).copied());
        let blocks = entry.shape.iter().zip(&shape).enumerate();
        let block: Option<Vec<usize>> = blocks.map(|(axis, (&size, &count))| block(size, count, given(axis))).collect();
        match block.filter(|_| shape.len() == axes) {
            Some(block) => Ok(Self { entry: scales, shape, block }),
            None => Err(wrong(format!(
                "one scale, one per row or one per block of equal size for {:?} {:?}",
                entry.name, entry.shape
            ))),
        }
    }

    /// Reads the scales.
    pub(super) fn read(&self) -> Result<Vec<f32>, CheckpointError> {
        let mut factors = Vec::new();
        self.entry.read(|piece| factors.extend_from_slice(piece.entries))?;
        Ok(factors)
    }

    /// Multiplies consecutive entries of a tensor of this shape, starting at index `first`, by their scales.
    pub(super) fn apply(&self, factors: &[f32], shape: &[usize], first: usize, entries: &mut [f32]) {
        let last = shape.len().saturating_sub(1);
        let (columns, width) = (shape.get(last).copied().unwrap_or(1), self.block.get(last).copied().unwrap_or(1));
        let mut done = 0;
        while done < entries.len() {
            let place = first + done;
            let (mut row, column) = (place / columns, place % columns);
            // The index of the scale is computed from the last axis to the first.
            let (mut index, mut stride) = (column / width, self.shape.get(last).copied().unwrap_or(1));
            for axis in (0..last).rev() {
                index += row % shape[axis] / self.block[axis] * stride;
                row /= shape[axis];
                stride *= self.shape[axis];
            }
            let run = (width - column % width).min(columns - column).min(entries.len() - done);
            entries[done..done + run].iter_mut().for_each(|entry| *entry *= factors[index]);
            done += run;
        }
    }
}

/// Returns the block size of an axis of `size` entries and `count` scales, where `given` is the size in the config;
/// `None` if no size fits.
fn block(size: usize, count: usize, given: Option<usize>) -> Option<usize> {
    let fits = |side: &usize| *side > 0 && size.div_ceil(*side) == count;
    if count == size {
        Some(1)
    } else if count == 1 {
        Some(size)
    } else {
        let exact = (count > 0 && size.is_multiple_of(count)).then(|| size / count);
        [given, Some(USUAL_BLOCK), exact].into_iter().flatten().find(fits)
    }
}

impl Dtype {
    fn is_eight_bits(&self) -> bool {
        match self {
            Self::F8E4M3 | Self::F8E5M2 => true,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 | Self::Other(_) => false,
        }
    }
}
