//! A table of smooth functions of (ln n, ln w) whose nodes are computed when they are first needed, once in a process:
//! a node depends on its place alone, so that who computed it makes no difference.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::interpolation::{lagrange, weighted};

/// Distance of nodes in ln n.
const STEP_N: f64 = 0.5;
const POINTS_N: usize = 4;
/// Smallest ln w that is asked for; the table starts a few nodes below.
const LOWEST_LN_W: f64 = -9.3;

/// The nodes that any prediction has computed: origin, index in ln n, index in ln w.
pub(super) struct Nodes<const K: usize>(Mutex<BTreeMap<(u64, i32, i32), [f64; K]>>);

impl<const K: usize> Nodes<K> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The node of this key. Threads do not wait while it is computed.
    pub(super) fn get(&self, key: (u64, i32, i32), compute: impl FnOnce() -> [f64; K]) -> [f64; K] {
        // Nodes are inserted whole, whatever happened to a thread.
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&key).copied();
        found.unwrap_or_else(|| {
            let node = compute();
            known().insert(key, node);
            node
        })
    }
}

/// Lagrange interpolation of K functions at once by `POINTS` points in ln w and four in ln n, of which
/// `origin` is a node.
pub(super) struct Grid<const K: usize, const POINTS: usize> {
    origin: f64,
    step_w: f64,
    /// Of all grids of the same functions.
    nodes: &'static Nodes<K>,
    /// Per node in ln n: its index, and the nodes in ln w.
    lines: Vec<(i32, Vec<Option<[f64; K]>>)>,
    /// Where ln n was last.
    line: Line<K>,
}

/// The functions along ln w at one ln n: the rows of one attention, and pairs of them, differ in w alone.
struct Line<const K: usize> {
    ln_n: f64,
    /// Index of the first node in ln n, and the weights.
    first: i32,
    weights: [f64; POINTS_N],
    /// Index of a node in ln w, and the functions there.
    nodes: Vec<(i32, [f64; K])>,
}

impl<const K: usize, const POINTS: usize> Grid<K, POINTS> {
    pub(super) fn new(origin: f64, step_w: f64, nodes: &'static Nodes<K>) -> Self {
        let line = Line { ln_n: f64::NAN, first: 0, weights: [0.0; POINTS_N], nodes: Vec::new() };
        Self { origin, step_w, nodes, lines: Vec::new(), line }
    }

    /// The functions at (ln n, ln w); `compute` gives them at a node.
    pub(super) fn at(&mut self, ln_n: f64, ln_w: f64, compute: &dyn Fn(f64, f64) -> [f64; K]) -> [f64; K] {
        if self.line.ln_n.total_cmp(&ln_n).is_ne() {
            (self.line.first, self.line.weights) = lagrange((ln_n - self.origin) / STEP_N);
            self.line.ln_n = ln_n;
            self.line.nodes.clear();
        }
        let (first, weights) = lagrange::<POINTS>(ln_w / self.step_w);
        weighted(first, weights, |index_w| self.on_line(index_w, compute))
    }

    /// The functions at this node in ln w, where ln n is.
    fn on_line(&mut self, index_w: i32, compute: &dyn Fn(f64, f64) -> [f64; K]) -> [f64; K] {
        if let Some((_, known)) = self.line.nodes.iter().find(|(index, _)| *index == index_w) {
            return *known;
        }
        let functions = weighted(self.line.first, self.line.weights, |index_n| self.node(index_n, index_w, compute));
        self.line.nodes.push((index_w, functions));
        functions
    }

    fn node(&mut self, index_n: i32, index_w: i32, compute: &dyn Fn(f64, f64) -> [f64; K]) -> [f64; K] {
        let position = self.lines.iter().position(|(index, _)| *index == index_n).unwrap_or_else(|| {
            self.lines.push((index_n, Vec::new()));
            self.lines.len() - 1
        });
        let line = &mut self.lines[position].1;
        let lowest = (LOWEST_LN_W / self.step_w).floor() as i32 - POINTS as i32;
        let place = (index_w - lowest) as usize;
        if line.len() <= place {
            line.resize(place + POINTS, None);
        }
        *line[place].get_or_insert_with(|| {
            // n = 1 is where overlaps lose their meaning: nodes stay above.
            let ln_n = (self.origin + STEP_N * f64::from(index_n)).max(0.05);
            let key = (self.origin.to_bits(), index_n, index_w);
            self.nodes.get(key, || compute(ln_n, self.step_w * f64::from(index_w)))
        })
    }
}
