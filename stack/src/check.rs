//! The check that a stack must pass before any traversal: widths fit and numbers are in range.

mod convolution;
mod disentangled;
mod images;
mod reads;
mod recurrence;

use std::borrow::Cow;
use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::{
    Activation, Attention, Component, EmbeddingTerm, Fan, GivenIds, GradientSeed, Head, Ids, Image, Init, Input,
    Interpreter, LearningRates, Linear, MapRole, Mixture, Node, Norm, NormKind, Number, Parameter, PositionBias,
    RowGroup, ScaleParameter, Site, Source, Stack, StackError, Stream, Sum, Tensor, Values, forward,
};

/// The largest size that is allowed: products of two sizes still fit in 64 bits.
const MAX_SIZE: usize = 1 << 31;

/// Traverses the stack with shapes instead of arrays and checks every width and every number.
pub fn check(stack: &Stack) -> Result<(), StackError> {
    met(whole(stack)?.as_ref()).map(|_| ())
}

/// Checks a stack like [`check`] and returns all its parameters, in the order of the traversal.
pub fn parameters(stack: &Stack) -> Result<Vec<Parameter>, StackError> {
    let parameter = |Met { name, shape, copies, values }| {
        let learning_rates = stack.learning_rates.get(name.as_ref()).copied().unwrap_or_default();
        Parameter { name: name.into_owned(), shape, copies, values, learning_rates }
    };
    Ok(met(whole(stack)?.as_ref())?.into_iter().map(parameter).collect())
}

/// Returns the stack with the body of its head appended to the stream where the gradient starts.
fn whole(stack: &Stack) -> Result<Cow<'_, Stack>, StackError> {
    if stack.gradient.stream >= stack.streams.len() {
        let got = format!("{} with {} streams", stack.gradient.stream, stack.streams.len());
        return Err(value("stack", "gradient.stream", "the index of a stream", got));
    }
    Ok(stack.head.as_ref().map_or(Cow::Borrowed(stack), |head| stack.with_head_body(head)))
}

/// Checks a stack and returns its parameters.
fn met(stack: &Stack) -> Result<Vec<Met<'_>>, StackError> {
    range("stack", "gradient.correlation", stack.gradient.correlation, 0.0..=1.0, "in [0, 1]")?;
    for stream in &stack.streams {
        size("stack", "seq_len", stream.seq_len)?;
        if stream.body.is_empty() {
            return Err(value("stack", "streams.body", "at least one node", "none".to_owned()));
        }
    }
    reads::check(stack)?;
    let mut widths = Widths::with_room(stack.streams.iter().map(|stream| nodes(&stream.body)).sum());
    let outputs = forward(stack, &mut widths)?;
    if let Some(head) = &stack.head {
        widths.head(head, outputs[stack.gradient.stream].width)?;
    }
    if let Some(site) = &widths.repeated {
        return Err(value(site, "name", "different from those of its neighbours", "the same twice".to_owned()));
    }
    widths.check_learning_rates(&stack.learning_rates)?;
    widths.check_row_groups(&stack.row_groups)?;
    widths.check_roles(&stack.roles)?;
    Ok(widths.parameters)
}

/// A [`Parameter`] without its learning rates. Its name is borrowed from the stack where the stack contains it.
struct Met<'s> {
    name: Cow<'s, str>,
    shape: [usize; 2],
    copies: usize,
    values: Values,
}

/// The shape of a signal, which the check carries instead of the signal.
#[derive(Clone, Copy)]
struct Shape {
    seq_len: usize,
    width: usize,
    /// The size of the images whose pixels are the tokens; `None` if no component of the stream is for images.
    image: Option<Image>,
}

/// The interpreter that carries shapes.
struct Widths<'s> {
    /// Parameters found so far.
    parameters: Vec<Met<'s>>,
    /// Index of each parameter in `parameters`, by its name.
    places: HashMap<Cow<'s, str>, usize>,
    /// Index of the first parameter of the expert under way; `None` outside mixtures.
    expert: Option<usize>,
    /// Paths of the sites visited so far.
    sites: HashSet<String>,
    /// The first path that occurs twice, which is an error: rows and random masks are found by path.
    repeated: Option<String>,
    /// True if the tokens so far are samples of one batch: Gaussian, without positions, and not mixed with each other.
    is_batch: bool,
}

impl<'s> Widths<'s> {
    /// Reserves room for `nodes` nodes: a growing table hashes every name again, which takes longer than the check.
    fn with_room(nodes: usize) -> Self {
        Self {
            parameters: Vec::with_capacity(nodes),
            places: HashMap::with_capacity(nodes),
            expert: None,
            sites: HashSet::with_capacity(nodes),
            repeated: None,
            is_batch: false,
        }
    }

    /// Adds a tensor of independent entries.
    fn tensor(&mut self, site: &str, tensor: &'s Tensor, shape: [usize; 2]) -> Result<(), StackError> {
        distribution(site, tensor.init)?;
        self.parameter(site, Cow::Borrowed(&tensor.name), shape, Values::Drawn(tensor.init))
    }

    /// Adds the weight of a linear map. No other tensor may be orthogonal.
    fn matrix(&mut self, site: &str, tensor: &'s Tensor, shape: [usize; 2]) -> Result<(), StackError> {
        match tensor.init {
            Init::Orthogonal { std } => weight(site, "std", std)?,
            init @ (Init::Zero | Init::Normal { .. } | Init::Uniform { .. } | Init::TruncatedNormal { .. }) => {
                distribution(site, init)?;
            }
        }
        self.parameter(site, Cow::Borrowed(&tensor.name), shape, Values::Drawn(tensor.init))
    }

    /// Adds a parameter, unless an earlier site uses it too.
    fn parameter(
        &mut self,
        site: &str,
        name: Cow<'s, str>,
        shape: [usize; 2],
        values: Values,
    ) -> Result<(), StackError> {
        let place = *self.places.entry(name.clone()).or_insert(self.parameters.len());
        let Some(known) = self.parameters.get(place) else {
            self.parameters.push(Met { name, shape, copies: 1, values });
            return Ok(());
        };
        if (known.shape, known.values) != (shape, values) {
            let got = format!("{shape:?} {values:?} and {:?} {:?} of the same name", known.shape, known.values);
            return Err(value(site, "tensor", "one shape and one distribution per name", got));
        }
        Ok(())
    }

    fn linear(&mut self, site: &str, linear: &'s Linear) -> Result<(), StackError> {
        size(site, "fan_out", linear.fan_out)?;
        if let Some(length) = linear.standardised {
            range(site, "standardised", length, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")?;
            if linear.fan_in < 2 {
                let got = format!("fan_in {}", linear.fan_in);
                return Err(value(site, "standardised", "rows of at least two entries", got));
            }
            if linear.weight.init.variance() <= 0.0 {
                return Err(value(site, "standardised", "of a weight that is initialised", "zeros".to_owned()));
            }
            distribution(site, linear.weight.init)?;
        }
        self.matrix(site, &linear.weight, [linear.fan_out, linear.fan_in])?;
        linear.bias.as_ref().map_or(Ok(()), |bias| self.tensor(site, bias, [linear.fan_out, 1]))
    }

    /// Checks the numbers of a norm.
    fn norm_values(site: &str, norm: &Norm) -> Result<(), StackError> {
        not_negative(site, "eps", norm.eps)?;
        if let Some((_, alpha)) = norm.kind.pointwise() {
            range(site, "alpha", alpha, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")?;
            range(site, "eps", norm.eps, 0.0..=0.0, "0 where nothing is divided by")?;
        }
        finite(site, "gain", norm.gain)?;
        distribution(site, norm.bias)
    }

    fn norm(&mut self, at: &Site, norm: &Norm, x: Shape) -> Result<(), StackError> {
        let site = at.path();
        Self::norm_values(site, norm)?;
        divisor(site, "groups", norm.groups, x.width, "a divisor of the width")?;
        if matches!(norm.kind, NormKind::BatchNorm { .. }) {
            self.batch_norm(at, norm, x.seq_len)?;
        }
        // All groups share the gains.
        self.parameter(site, at.gain().into(), [x.width / norm.groups, 1], Values::Gains(*norm))
    }

    /// Checks a BatchNorm, whose rule treats the tokens as a batch.
    fn batch_norm(&self, at: &Site, norm: &Norm, tokens: usize) -> Result<(), StackError> {
        /// The mean of 1/v is infinite for fewer tokens.
        const FEWEST: usize = 4;
        let site = at.path();
        if !self.is_batch || at.expert().is_some() {
            let got = "batchnorm".to_owned();
            return Err(value(site, "kind", "another norm unless tokens are Gaussian vectors and never meet", got));
        }
        if tokens < FEWEST {
            return Err(value(site, "seq_len", "a batch of at least 4 with batchnorm", tokens.to_string()));
        }
        if !norm.bias.is_zero() {
            return Err(value(site, "bias", "zeros with batchnorm", "a distribution".to_owned()));
        }
        range(site, "groups", norm.groups as f64, 1.0..=1.0, "1 with batchnorm")
    }

    /// Adds the factor on the branch of a residual connection to the parameters.
    fn branch_scale(&mut self, at: &Site, sum: &Sum, width: usize) -> Result<(), StackError> {
        let [skip, branch] = sum.branches.as_slice() else { return Ok(()) };
        let name = Cow::Owned(at.scale());
        // Constant factors of sites that share their parameters may differ.
        let is_new = branch.scale_parameter != ScaleParameter::Constant || !self.places.contains_key(&name);
        if !skip.body.is_empty() || !is_new {
            return Ok(());
        }
        self.parameter(at.path(), name, [width, 1], Values::Scale(branch.scale))
    }

    /// Checks a head that reads `width` features.
    fn head(&mut self, head: &'s Head, width: usize) -> Result<(), StackError> {
        size("head", "vocab_size", head.vocab_size)?;
        if head.width != width {
            return Err(StackError::Width { site: "head".to_owned(), expected: head.width, got: width });
        }
        self.matrix("head", &head.weight, [head.vocab_size, width])?;
        if let Some(bias) = &head.bias {
            self.tensor("head", bias, [head.vocab_size, 1])?;
        }
        if let Some(cap) = head.softcap {
            range("head", "softcap", cap, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")?;
        }
        finite("head", "scale", head.scale)
    }

    fn check_row_groups(&self, row_groups: &BTreeMap<String, Vec<RowGroup>>) -> Result<(), StackError> {
        for (name, groups) in row_groups {
            let Some(&place) = self.places.get(name.as_str()) else {
                return Err(value("stack", "row_groups", "of parameters by their names", name.clone()));
            };
            for group in groups {
                size(name, "row_groups.rows", group.rows)?;
                not_negative(name, "row_groups.std", group.std)?;
            }
            let (rows, of) = (groups.iter().map(|group| group.rows).sum::<usize>(), self.parameters[place].shape[0]);
            if rows != of {
                return Err(value(
                    name,
                    "row_groups.rows",
                    "as many as the tensor has, all together",
                    rows.to_string(),
                ));
            }
        }
        Ok(())
    }

    fn check_roles(&self, roles: &BTreeMap<String, MapRole>) -> Result<(), StackError> {
        match roles.keys().find(|name| !self.places.contains_key(name.as_str())) {
            Some(name) => Err(value("stack", "roles", "of parameters by their names", name.clone())),
            None => Ok(()),
        }
    }

    fn check_learning_rates(&self, learning_rates: &BTreeMap<String, LearningRates>) -> Result<(), StackError> {
        for (name, rates) in learning_rates {
            if !self.places.contains_key(name.as_str()) {
                return Err(value("stack", "learning_rates", "of parameters by their names", name.clone()));
            }
            not_negative(name, "learning_rates.sgd", rates.sgd)?;
            not_negative(name, "learning_rates.adam", rates.adam)?;
        }
        Ok(())
    }
}

impl<'s> Interpreter<'s> for Widths<'s> {
    type Signal = Shape;
    type Gradient = ();
    type Kept = ();
    type Error = StackError;

    fn source(&mut self, _: &Site, stream: &'s Stream) -> Result<Shape, StackError> {
        let site = "source";
        let width = stream.source.width();
        let seq_len = stream.seq_len;
        size(site, "width", width)?;
        self.is_batch = matches!(stream.source, Source::Gaussian(_));
        match &stream.source {
            Source::Gaussian(gaussian) => {
                finite(site, "mean", gaussian.mean)?;
                not_negative(site, "variance", gaussian.variance)?;
                range(site, "correlation", gaussian.correlation, 0.0..=1.0, "in [0, 1]")?;
            }
            Source::Embedding(embedding) => {
                size(site, "vocab_size", embedding.ids.vocab_size())?;
                match &embedding.ids {
                    Ids::PowerLaw(law) => not_negative(site, "exponent", law.exponent)?,
                    Ids::Given(given) => check_sequences(site, given, seq_len)?,
                }
                for term in &embedding.terms {
                    match term {
                        EmbeddingTerm::Token { table } => {
                            self.tensor(site, table, [embedding.ids.vocab_size(), width])?;
                        }
                        EmbeddingTerm::LearnedPosition { table } => self.tensor(site, table, [seq_len, width])?,
                        EmbeddingTerm::Segment { table } => self.tensor(site, table, [2, width])?,
                        EmbeddingTerm::Constant { table, rows } => {
                            size(site, "rows", *rows)?;
                            self.tensor(site, table, [*rows, width])?;
                        }
                        EmbeddingTerm::SinusoidalPosition { scale } => finite(site, "scale", *scale)?,
                    }
                }
            }
        }
        Ok(Shape { seq_len, width, image: stream.image().filter(|image| is_whole(*image, seq_len)) })
    }

    fn source_backward(&mut self, _: &Site, _: &Stream, (): ()) -> Result<(), StackError> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &Shape) -> Result<(), StackError> {
        Ok(())
    }

    fn apply(&mut self, at: &Site, component: &'s Component, x: Shape) -> Result<(Shape, ()), StackError> {
        let site = at.path();
        if at.expert().is_some() {
            self.expert.get_or_insert(self.parameters.len());
        }
        let y = match component {
            Component::Linear(linear) => {
                same_width(at, linear.fan_in, x.width)?;
                self.linear(site, linear)?;
                Shape { width: linear.fan_out, ..x }
            }
            Component::Norm(norm) => {
                self.norm(at, norm, x)?;
                x
            }
            Component::Activation(activation) => {
                if let Activation::LeakyRelu { slope } = activation {
                    finite(site, "slope", *slope)?;
                }
                x
            }
            Component::Dropout(dropout) => {
                rate(site, "rate", dropout.rate)?;
                x
            }
            Component::Scale(scale) => {
                finite(site, "factor", scale.factor)?;
                x
            }
            Component::Rotary(rotary) => {
                self.is_batch = false;
                divisor(site, "d_head", rotary.d_head, x.width, "a divisor of the width")?;
                if 2 * rotary.frequencies.len() > rotary.d_head {
                    let got = rotary.frequencies.len().to_string();
                    return Err(value(site, "frequencies", "at most d_head/2 numbers", got));
                }
                for frequency in &rotary.frequencies {
                    finite(site, "frequencies", *frequency)?;
                }
                x
            }
            Component::Embedding(term) => {
                self.is_batch &= matches!(term, EmbeddingTerm::Constant { rows: 1, .. });
                match term {
                    EmbeddingTerm::LearnedPosition { table } => self.tensor(site, table, [x.seq_len, x.width])?,
                    EmbeddingTerm::SinusoidalPosition { scale } => finite(site, "scale", *scale)?,
                    EmbeddingTerm::Constant { table, rows } => {
                        size(site, "rows", *rows)?;
                        self.tensor(site, table, [*rows, x.width])?;
                    }
                    EmbeddingTerm::Token { .. } | EmbeddingTerm::Segment { .. } => {
                        let got = "one of ids or segments".to_owned();
                        return Err(value(site, "embedding", "one of positions after the source", got));
                    }
                }
                x
            }
            Component::Convolution(convolution) => self.convolution(at, convolution, x)?,
            Component::Pool(pool) => self.pool(at, pool, x)?,
            Component::Select(select) => {
                same_width(at, select.of, x.width)?;
                size(site, "width", select.width)?;
                if select.start.saturating_add(select.width) > select.of {
                    let got = format!("{} … {}", select.start, select.start.saturating_add(select.width));
                    return Err(value(site, "start", "features that x has, up to `of`", got));
                }
                Shape { width: select.width, ..x }
            }
            Component::Prepend(prepend) => {
                self.is_batch = false;
                self.tensor(site, &prepend.token, [1, x.width])?;
                Shape { seq_len: x.seq_len + 1, ..x }
            }
        };
        Ok((y, ()))
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), StackError> {
        Ok(())
    }

    fn fork(&mut self, _: &Site, _: Fan, input: &Shape, _: usize) -> Shape {
        *input
    }

    fn merge(&mut self, at: &Site, fan: Fan<'s>, x: Shape, parts: Vec<Shape>) -> Result<(Shape, ()), StackError> {
        let site = at.path();
        self.is_batch &= (0..parts.len()).all(|part| !matches!(fan.input(part), Input::Stream(_)));
        let y = match fan {
            Fan::Sum(sum) => {
                for branch in &sum.branches {
                    finite(site, "scale", branch.scale)?;
                    rate(site, "drop_rate", branch.drop_rate)?;
                }
                self.branch_scale(at, sum, x.width)?;
                common_shape(at, &parts)?
            }
            Fan::Product(_) => common_shape(at, &parts)?,
            Fan::Concat(concat) => {
                size(site, "n_heads", concat.n_heads)?;
                let mut width = 0;
                for (part, shape) in concat.parts.iter().zip(&parts) {
                    same_length(at, x.seq_len, shape.seq_len)?;
                    if !part.shared {
                        divisor(site, "n_heads", concat.n_heads, shape.width, "a divisor of the width of a part")?;
                    }
                    width += if part.shared { concat.n_heads * shape.width } else { shape.width };
                }
                size(site, "parts", width)?;
                Shape { width, ..x }
            }
            Fan::Attention(attention) => {
                self.is_batch = false;
                self.attention(at, attention, &parts)?
            }
            Fan::Recurrence(recurrence) => {
                self.is_batch = false;
                self.recurrence(at, recurrence, &parts)?
            }
            Fan::Mixture(mixture) => {
                size(site, "n_experts", mixture.n_experts)?;
                if !(1..=mixture.n_experts).contains(&mixture.top_k) {
                    let got = format!("{} of {}", mixture.top_k, mixture.n_experts);
                    return Err(value(site, "top_k", "between 1 and n_experts", got));
                }
                finite(site, "scale", mixture.scale)?;
                let first = self.expert.take().unwrap_or(self.parameters.len());
                for parameter in &mut self.parameters[first..] {
                    parameter.copies *= mixture.n_experts;
                }
                self.matrix(site, &mixture.router, [mixture.n_experts, x.width])?;
                common_shape(at, &parts)?
            }
        };
        Ok((y, ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, StackError> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), StackError> {
        Ok(())
    }

    fn arrive(&mut self, _: Option<()>, (): ()) -> Result<(), StackError> {
        Ok(())
    }

    /// Returns 1: all experts have the same shapes.
    fn experts(&self, _: &Mixture) -> usize {
        1
    }

    fn observe(&mut self, at: &Site, _: &Shape) {
        if !self.sites.insert(at.path().to_owned()) {
            self.repeated.get_or_insert_with(|| at.path().to_owned());
        }
    }

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}

impl<'s> Widths<'s> {
    fn attention(&mut self, at: &Site, attention: &'s Attention, parts: &[Shape]) -> Result<Shape, StackError> {
        let site = at.path();
        for (field, got) in [
            ("n_heads", attention.n_heads),
            ("n_kv_heads", attention.n_kv_heads),
            ("d_head", attention.d_head),
            ("d_value", attention.d_value),
        ] {
            size(site, field, got)?;
        }
        if !attention.n_heads.is_multiple_of(attention.n_kv_heads) {
            let got = format!("{} of {}", attention.n_kv_heads, attention.n_heads);
            return Err(value(site, "n_kv_heads", "a divisor of n_heads", got));
        }
        finite(site, "scale", attention.scale)?;
        if let Some(cap) = attention.softcap {
            range(site, "softcap", cap, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")?;
        }
        rate(site, "dropout_rate", attention.dropout_rate)?;
        match &attention.bias {
            None => {}
            Some(PositionBias::Alibi { slopes }) => {
                if slopes.len() != attention.n_heads {
                    let got = slopes.len().to_string();
                    return Err(value(site, "slopes", "as many numbers as heads", got));
                }
                for slope in slopes {
                    not_negative(site, "slopes", *slope)?;
                }
            }
            Some(PositionBias::Relative { table, buckets, max_distance, .. }) => {
                range(site, "buckets", *buckets as f64, 4.0..=1e6, "at least 4")?;
                if max_distance <= buckets {
                    let got = max_distance.to_string();
                    return Err(value(site, "max_distance", "more than buckets", got));
                }
                self.tensor(site, table, [*buckets, attention.n_heads])?;
            }
            Some(PositionBias::Disentangled(positions)) => self.disentangled(site, attention, positions)?,
        }
        if let Some(sink) = &attention.sink {
            self.tensor(site, sink, [attention.n_heads, 1])?;
        }
        let width = |heads: usize, width: usize| heads * width;
        let expected = [
            width(attention.n_heads, attention.d_head),
            width(attention.n_kv_heads, attention.d_head),
            width(attention.n_kv_heads, attention.d_value),
        ];
        for (expected, got) in expected.into_iter().zip(parts) {
            same_width(at, expected, got.width)?;
        }
        let [query, key, val] = parts else {
            unreachable!("attention has the parts query, key, value");
        };
        same_length(at, key.seq_len, val.seq_len)?;
        let lacks = |query: &usize| attention.mask.keys(*query, key.seq_len).is_empty();
        // The first visible key never moves back: if the last query attends to a key, all queries do.
        if lacks(&query.seq_len.saturating_sub(1)) {
            let first = (0..query.seq_len).find(lacks).unwrap_or_default();
            return Err(value(site, "mask", "at least one key for every query", format!("none at position {first}")));
        }
        Ok(Shape { seq_len: query.seq_len, width: width(attention.n_heads, attention.d_value), image: None })
    }
}

/// Returns the number of nodes, including the nodes inside others.
fn nodes(body: &[Node]) -> usize {
    body.iter().map(|node| 1 + node.op.bodies().map(nodes).sum::<usize>()).sum()
}

fn check_sequences(site: &str, given: &GivenIds, seq_len: usize) -> Result<(), StackError> {
    if given.sequences.is_empty() {
        return Err(value(site, "sequences", "at least one", "none".to_owned()));
    }
    for sequence in &given.sequences {
        if sequence.len() != seq_len {
            return Err(value(site, "sequences", "as long as seq_len", format!("{} ids", sequence.len())));
        }
        if let Some(id) = sequence.iter().find(|&&id| id as usize >= given.vocab_size) {
            return Err(value(site, "sequences", "below vocab_size", id.to_string()));
        }
    }
    Ok(())
}

fn common_shape(at: &Site, parts: &[Shape]) -> Result<Shape, StackError> {
    let Some((&first, rest)) = parts.split_first() else {
        return Err(value(at.path(), "parts", "at least one", "none".to_owned()));
    };
    rest.iter().try_for_each(|part| {
        same_width(at, first.width, part.width)?;
        same_length(at, first.seq_len, part.seq_len)
    })?;
    Ok(first)
}

fn same_width(at: &Site, expected: usize, got: usize) -> Result<(), StackError> {
    if expected == got { Ok(()) } else { Err(StackError::Width { site: at.to_string(), expected, got }) }
}

fn same_length(at: &Site, expected: usize, got: usize) -> Result<(), StackError> {
    if expected == got {
        return Ok(());
    }
    let got = format!("{got} tokens and {expected}");
    Err(value(at.path(), "parts", "of one sequence length", got))
}

fn divisor(
    site: &str,
    field: &'static str,
    part: usize,
    whole: usize,
    expected: &'static str,
) -> Result<(), StackError> {
    size(site, field, part)?;
    if whole.is_multiple_of(part) {
        return Ok(());
    }
    Err(value(site, field, expected, format!("{part} of {whole}")))
}

/// Returns true if `seq_len` tokens are the pixels of whole images of this size.
fn is_whole(image: Image, seq_len: usize) -> bool {
    let pixels = image.height.checked_mul(image.width);
    pixels.is_some_and(|pixels| pixels > 0 && seq_len.is_multiple_of(pixels))
}

fn size(site: &str, field: &'static str, got: usize) -> Result<(), StackError> {
    if (1..=MAX_SIZE).contains(&got) {
        Ok(())
    } else {
        Err(value(site, field, "between 1 and 2147483648", got.to_string()))
    }
}

fn rate(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=1.0 - f64::EPSILON, "in [0, 1)")
}

fn finite(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, f64::MIN..=f64::MAX, "finite")
}

fn not_negative(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=f64::MAX, "finite and not negative")
}

/// Checks a distribution of independent entries.
fn distribution(site: &str, init: Init) -> Result<(), StackError> {
    match init {
        Init::Zero => Ok(()),
        Init::Normal { std } => weight(site, "std", std),
        Init::Uniform { bound } => weight(site, "bound", bound),
        Init::TruncatedNormal { std, cutoff } => {
            weight(site, "std", std)?;
            range(site, "cutoff", cutoff, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")
        }
        Init::Orthogonal { .. } => {
            let expected = "normal, uniform, truncated_normal or zero: only weights of linear maps, not standardised, may be \
                            orthogonal";
            Err(value(site, "init", expected, "orthogonal".to_owned()))
        }
    }
}

/// Checks the scale of a weight, whose square must not overflow.
fn weight(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=1e100, "between 0 and 1e100")
}

fn range(
    site: &str,
    field: &'static str,
    got: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), StackError> {
    if range.contains(&got) { Ok(()) } else { Err(value(site, field, expected, Number::from(got).to_string())) }
}

fn value(site: &str, field: &'static str, expected: &'static str, got: String) -> StackError {
    StackError::Value { site: site.to_owned(), field, expected, got }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dropout, Gaussian, Mask, Op};

    fn stack(body: Vec<Node>) -> Stack {
        let source = Source::Gaussian(Gaussian { width: 4, mean: 0.0, variance: 1.0, correlation: 0.0 });
        let streams = vec![Stream { name: "main".to_owned(), seq_len: 2, source, body }];
        let gradient = GradientSeed { stream: 0, correlation: 0.0 };
        Stack::new("test", streams, gradient)
    }

    #[test]
    fn paths_are_unique() {
        let dropout = |name: &str| Node::apply(name, Component::Dropout(Dropout { rate: 0.1 }));
        let chain = |name: &str, body| Node::new(name, Op::Chain(body));
        let nested = vec![chain("a", vec![dropout("x")]), chain("b", vec![dropout("x")])];
        assert_eq!(check(&stack(nested)), Ok(()));
        let error = check(&stack(vec![chain("a", vec![dropout("x"), dropout("x")])])).expect_err("two equal paths");
        assert_eq!(error.to_string(), "a.x: name must be different from those of its neighbours, got the same twice");
    }

    /// Two norms with common gains have one parameter; their gains must then be equal.
    #[test]
    fn a_site_shares_the_gains_of_another() {
        let norm = |gain: f64| Component::Norm(Norm { gain, ..Norm::plain(NormKind::RmsNorm, 0.0) });
        let block = |name: &str, gain| Node::new(name, Op::Chain(vec![Node::apply("norm", norm(gain))]));
        let twice = |gain| {
            let second = Node { shared_with: Some("blocks.0".to_owned()), ..block("blocks.1", gain) };
            stack(vec![block("blocks.0", 2.0), second, block("blocks.2", 2.0)])
        };
        let names = parameters(&twice(2.0)).expect("valid").into_iter().map(|parameter| parameter.name);
        assert_eq!(names.collect::<Vec<_>>(), ["blocks.0.norm.gain", "blocks.2.norm.gain"]);
        let error = check(&twice(1.0)).expect_err("two gains").to_string();
        assert!(error.starts_with("blocks.1.norm: tensor must be one shape and one distribution per name"), "{error}");
        let mut renamed = Vec::new();
        twice(2.0)
            .change(|named| renamed.extend(if let crate::Named::Norm(name, _) = named { Some(name) } else { None }));
        assert_eq!(renamed, ["blocks.0.norm.gain", "blocks.0.norm.gain", "blocks.2.norm.gain"]);
    }

    #[test]
    fn learning_rates_are_of_parameters() {
        let norm = Norm::plain(NormKind::RmsNorm, 0.0);
        let mut stack = stack(vec![Node::apply("norm", Component::Norm(norm))]);
        let rates = LearningRates { sgd: 2.0, adam: 0.5 };
        stack.learning_rates.insert("norm.gain".to_owned(), rates);
        assert_eq!(parameters(&stack).expect("valid")[0].learning_rates, rates);
        stack.learning_rates.insert("norm.gain".to_owned(), rates.scaled(-1.0));
        let error = check(&stack).expect_err("negative").to_string();
        assert_eq!(error, "norm.gain: learning_rates.sgd must be finite and not negative, got -2");
        stack.learning_rates = BTreeMap::from([("norm.bias".to_owned(), rates)]);
        let error = check(&stack).expect_err("unknown").to_string();
        assert_eq!(error, "stack: learning_rates must be of parameters by their names, got norm.bias");
    }

    #[test]
    fn standardised_rows_have_a_length_and_something_left() {
        let of = |fan_in: usize, length: f64, std: f64| {
            let weight = Tensor { name: "w".to_owned(), init: Init::Normal { std } };
            let map = Linear { fan_in, fan_out: 3, weight, bias: None, standardised: Some(length) };
            let mut stack = stack(vec![Node::apply("map", Component::Linear(map))]);
            stack.streams[0].source =
                Source::Gaussian(Gaussian { width: fan_in, mean: 0.0, variance: 1.0, correlation: 0.0 });
            check(&stack).map_err(|error| error.to_string())
        };
        assert_eq!(of(2, 1.5, 0.1), Ok(()));
        assert_eq!(of(2, 0.0, 0.1).expect_err("no length"), "map: standardised must be finite and positive, got 0");
        let error = of(1, 1.0, 0.1).expect_err("nothing left");
        assert_eq!(error, "map: standardised must be rows of at least two entries, got fan_in 1");
        let error = of(2, 1.5, 0.0).expect_err("no direction");
        assert_eq!(error, "map: standardised must be of a weight that is initialised, got zeros");
    }

    #[test]
    fn only_weights_of_linear_maps_are_orthogonal() {
        let tensor = |name: &str, init| Tensor { name: name.to_owned(), init };
        let orthogonal = Init::Orthogonal { std: 0.5 };
        let of = |bias, standardised| {
            let bias = Some(tensor("b", bias));
            let map = Linear { fan_in: 4, fan_out: 3, weight: tensor("w", orthogonal), bias, standardised };
            check(&stack(vec![Node::apply("map", Component::Linear(map))])).map_err(|error| error.to_string())
        };
        assert_eq!(of(Init::Zero, None), Ok(()));
        for refused in [of(orthogonal, None), of(Init::Zero, Some(1.0))] {
            let error = refused.expect_err("no weight of a plain linear map");
            assert!(error.starts_with("map: init must be normal, uniform, truncated_normal or zero"), "{error}");
        }
    }

    /// BatchNorm needs at least four tokens, and none with a position.
    #[test]
    fn batch_norm_is_over_a_batch() {
        let of = |seq_len: usize, before: Vec<Node>| {
            let norm = Norm::plain(NormKind::BatchNorm { training: true }, 1e-5);
            let mut stack = stack(before.into_iter().chain([Node::apply("norm", Component::Norm(norm))]).collect());
            stack.streams[0].seq_len = seq_len;
            check(&stack).map_err(|error| error.to_string())
        };
        let waves = Component::Embedding(EmbeddingTerm::SinusoidalPosition { scale: 1.0 });
        assert_eq!(of(4, Vec::new()), Ok(()));
        let error = of(3, Vec::new()).expect_err("too few");
        assert_eq!(error, "norm: seq_len must be a batch of at least 4 with batchnorm, got 3");
        let error = of(4, vec![Node::apply("waves", waves)]).expect_err("positions");
        assert!(error.starts_with("norm: kind must be another norm unless tokens are Gaussian vectors"), "{error}");
    }

    /// Query a attends to the keys a − 2 … a, of which only 0 … 3 exist: query 6 is the first without a key.
    #[test]
    fn a_query_that_sees_no_key_is_refused() {
        let mut reader = stack(vec![Node::apply("dropout", Component::Dropout(Dropout { rate: 0.5 }))]);
        reader.streams[0].seq_len = 4;
        let parts = [Vec::new(), Vec::new(), Vec::new()];
        let mask = Mask { before: Some(2), after: Some(0) };
        let attention = Attention { memory: Some(0), mask, ..Attention::plain(1, 1, 4, parts) };
        let body = vec![Node::new("attention", Op::Attention(attention))];
        let second = Stream { name: "second".to_owned(), seq_len: 10, body, ..reader.streams[0].clone() };
        reader.streams.push(second);
        let error = check(&reader).expect_err("blind").to_string();
        assert!(error.ends_with("mask must be at least one key for every query, got none at position 6"), "{error}");
        reader.streams[1].seq_len = 6;
        assert_eq!(check(&reader), Ok(()));
    }
}
