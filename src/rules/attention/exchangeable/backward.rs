//! The gradients at queries, keys and values of exchangeable tokens.
//!
//! # Formula
//!
//! Γ, r_g: second moment and mean cosine of the gradient at the output, T, T11 as in softmax,
//! τ = (1/(1 − p) − c_v)/(1 − c_v), K = scale² d_head Γ:
//!
//! ```text
//! value  E g² = Γ (S2/(1 − p) + (L − 1) r_g S11)       E g_b g_b' = Γ ((1 − S2)/(L − 1) + r_g (1 − S11))
//! query  E g² = K E k² E v² (1 − c_k)(1 − c_v) (τ (T − (T − U)/d_head) + (1 − 2 S2 + S22 + U)/width)
//!        E g_a g_c = K E k² E v² (1 − c_k)(1 − c_v) r_g (T11 + (1 − S2)²/width)
//! key    E g² = K E q² E v² (1 − c_v) (τ E χT + (L − 1) r_g E ρT11)      E g_b g_b' = −E g²/(L − 1)
//! ```
//!
//! The query gradient is W_K y, y = Σ_b A_ab (g_b − ΣAg) x_b with g_b = h·x_b. Of the directions of x_b, that of
//! h adds E (ΣA g² − (ΣAg)²)² = 1 − 2 S2 + S22 + 2T where others have T, and that of the scores has U = E ΣA² (s −
//! ΣAs)²/w in place of T, for a score close to its average passes nothing; W_K maps it on the query itself, one of
//! d_head directions.
//!
//! In place of 1/width stands γ, and T is multiplied by what lengths of token differences stray less than Gaussian ones
//! (`Unequal`). Of such tokens little is left beside a score that is far from its average, along h as along all other
//! directions: with k the kurtosis of the scores T gains k/6 E ΣA² (1 − 2A + ΣA²) (s²/w − 1) at keys, which meet values alone, and
//! twice that at queries, of h·x_b as of the rest of x_b (`outlying`). Their norm does not stray with |q|², so that of χ keys meet
//! what queries draw, 1/d_head of 1/n_h (`weighted`). Sampled: one head of 64 on 32 uncorrelated tokens of width 64, w = 1 (4000
//! networks): queries 2.6 ± 0.2 %, keys 4.8 ± 0.3 % too large without, Gaussian tokens right to 0.3 %; E Σ A² (g − ΣAg)² over that of
//! Gaussian tokens 0.968, told 0.967.
//! τ's masks and gradients of the softmax take h·v_b of all that values share with the output, of which norms leave ρ over
//! all heads together: times 1 + (ρ − 1) cos²(v, z)/n_heads.
//!
//! The key weights collect Σ_b δs_ab x_b, which carries the 1/width of the query gradient too;
//! the product of the average x_b·x_b' and g_b·g_b' does not (`coupling`). Queries a, c whose inputs happen to be more
//! alike have more T11 in common: E x_a·x_c T11(ρ̂) − c T11 = T11' γ, of E ρ̂ T11(ρ̂) − ρ T11 the part γ/(1/d_head +
//! 1/width).
//!
//! The value weights collect Σ_ac g_a·g_c E x̄_a·x̄_c, x̄ = Σ A x, whose pull the product of the average x_b·x_b' and
//! g_b·g_b' lacks (`coupling`; a quarter of it for 64 uncorrelated tokens of width 64).
//!
//! Σ_b k_b·g_b is Σ_a q_a·g_a: along their signals gradients of keys have, together, what those of queries have, which point
//! anywhere, Q = ρ_q (1 + (L − 1) ⟨c_q c_gq⟩) (E q² E g_q²)/(E k² E g_k²), and P = (Q − ρ_k)/(L − 1) − ρ_k ⟨c c_g⟩ per pair (`along`).
//! Behind masks it is left out.
//!
//! Key and value gradients are summed over the query heads of their group. The radial share goes to
//! the values as 1 + (ρ − 1) cos²(v, z).
//!
//! Lengths and sharpness: `attention/lengths.rs`.

use std::iter::repeat_n;
use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Attention;

use super::{Attended, pairs_of_queries};
use crate::domain::{Exchangeable, Gradient, Signal};
use crate::moments::{Few, TokenGradient, ratio, share};
use crate::rules::attention::fluctuation::{Powers, Straying, gathered};
use crate::rules::attention::lengths::{self, Met};
use crate::rules::attention::{SHARPEST_SAMPLED, alike_within_heads, along_values};
use crate::rules::softmax::Cross;

impl Attended {
    /// The gradients at queries, keys and values.
    pub(crate) fn split(
        &self,
        attention: &Attention,
        domain: &Exchangeable,
        gradient: &Gradient,
        strayed: Straying,
    ) -> [Gradient; 3] {
        let length = domain.seq_len;
        let keep = 1.0 - attention.dropout_rate;
        let keys = &self.keys;
        let group = (attention.n_heads / attention.n_kv_heads) as f64;
        let ln_score = gradient.token().ln_second
            + (attention.scale.powi(2) * keys.score_slope * attention.d_value as f64).ln()
            + self.value.token().ln_second
            - 0.5 * keys.ln_beyond;
        let others = length - 1.0;
        let pairs = |of: &dyn Fn(&Cross) -> f64| self.over_pairs(domain, gradient, of);
        let heads = attention.n_heads as f64;
        let alignment = self.value_alignment();
        let masked = (keep.recip() - 1.0) * along_values(attention, gradient.token(), alignment);
        // Values.
        let row = &self.row;
        // Of the output's square, in units of E v².
        let of_keys = keys.amplitude * share(self.value.token().ln_second, self.output.token().ln_second) / heads;
        let met = Met::new(row, keys.effective, gradient.token(), of_keys);
        let [squares_grow, passed_grows] = self.growth;
        let own_row = keys.single(row.s2) * met.squares * strayed.of(Powers::scores(squares_grow));
        // Gradients that add up to nothing leave rounding.
        let value_own = (own_row / keep + others * pairs(&|cross| self.keys.overlap(cross.excess))).max(0.0);
        let [crossed, key_radial] = self.longer(domain, gradient, own_row / keep, value_own, length);
        let sums = [own_row, own_row / keep, value_own];
        let value = self.values(domain, gradient, strayed, sums, [group * value_own, crossed]);

        // Queries: of differences of keys and of values, but for the masks of single values.
        let [one, two] = [1.0, keys.key_cosine].map(|part| Powers::scores(part * passed_grows));
        let [met_one, met_two] = [one, two].map(|met| met.and(0.0, 0.0, 2.0));
        let between = (1.0 - keys.key_cosine) * strayed.of(met_two);
        let value_difference = 1.0 - keys.value_cosine;
        let directions = value_difference * self.leant;
        let differences = (1.0 - keys.key_cosine) * strayed.of(met_one) * directions;
        // A longer key is met at more weight; beyond what was sampled that is not let grow.
        let sampled = keys.contrast.min(SHARPEST_SAMPLED);
        let attended = ratio(row.leaning(sampled) * row.t(), row.s2 * row.s2);
        let own_directions = directions * row.own_directions().iter().sum::<f64>();
        // Of a query alone, whose keys pass T, `through`, with this power of what is the same for all.
        let alone = |through: f64, all: f64| {
            let both = (1.0 - keys.key_cosine) * strayed.of(met_one.and(all, 0.0, 0.0));
            let own_directions = both * own_directions;
            let [of_values, of_keys] = self.outlying;
            let normalised = self.unequal + of_values + of_keys;
            let lengths = normalised + self.longer * (1.0 + 2.0 * attended);
            let of_masks = (1.0 - keys.key_cosine) * strayed.of(one.and(1.0 + all, 0.0, 1.0)) * masked * keys.masking;
            let single = (both * keys.passing.own * lengths + of_masks) * met.sharp * through;
            single + both * keys.passing.own * met.along + own_directions
        };
        let query_own = alone(row.t() - (row.t() - row.tilt) / attention.d_head as f64, 0.0);
        let query_cosines = self.query_cosines(gradient, query_own, [between, differences]);
        let ln_query = ln_score + self.key.token().ln_second + query_own.max(0.0).ln();
        let radial = if query_own > 0.0 { lengths::query_radial(row) } else { 1.0 };
        let query_token = TokenGradient { radial, local: gradient.token().local, ..TokenGradient::isotropic(ln_query) };
        let beside = others * between * keys.passing.own;
        let together = beside * ratio(self.alike_queries(domain, gradient), query_own);
        let of_inputs = ratio(self.concentration, self.drawn);
        // The input of the query, alone and with that of another one.
        let met_again = |met: Powers, again: Powers| ratio(strayed.of(again), strayed.of(met)) - 1.0;
        let coupling = of_inputs * together
            + met_again(met_one, met_one.and(1.0, 0.0, 0.0))
            + met_again(met_two, met_two.and(0.0, 1.0, 0.0))
                * others
                * domain.mean_product(&self.query.cosines, &query_cosines);
        let of_cosines = strayed.answers(Powers::scores(passed_grows * (keys.key_cosine - 1.0)));
        let query = Gradient {
            coupling,
            one_sided: true,
            knows_networks: true,
            across: gradient.across.map(|_| 1.0),
            unmet: alike_within_heads(
                (1.0 - of_inputs) * together,
                self.query.token().width,
                others,
                domain.mean(&self.query.cosines),
            ),
            response: Matrix2::from_columns(&[strayed.answers(met_one), of_cosines]),
            ..Gradient::new([query_token].into(), query_cosines)
        };

        // Keys: of differences of values, met by two queries.
        let [met_one, met_two] = [one.and(1.0, 0.0, 1.0), two.and(0.0, 1.0, 1.0)];
        let own_difference = value_difference * strayed.of(met_one);
        let key_alone = keys.reaching.own
            * ((own_difference * (1.0 + self.outlying[0] + self.longer * attended) + masked)
                * met.sharp
                * self.weighted
                + own_difference * met.along);
        let key_pairs =
            others * value_difference * strayed.of(met_two) * pairs(&|cross| keys.weighted(keys.reaching, row, cross));
        let key_own = key_alone + key_pairs;
        let key_cosines = self.key_pairs(domain);
        // Σ_b δs_ab x_b, which the key weights collect, is what the query gradient is made of.
        let collected = alone(self.weighted, 1.0)
            + others * strayed.of(met_two.and(0.0, 0.0, 1.0)) * self.collected_pairs(domain, gradient);
        let coupling =
            ratio(collected, key_own) - domain.coherence(domain.mean_product(&self.key.cosines, &key_cosines));
        let ln_key = ln_score + self.query.token().ln_second + (group * key_own.max(0.0)).ln();
        let of_pairs = ratio(key_pairs, key_own);
        let answers = (1.0 - of_pairs) * strayed.answers(met_one) + of_pairs * strayed.answers(met_two);
        let token = self.key_token(ln_key, key_radial, value.token());
        let key = Gradient {
            coupling,
            one_sided: true,
            knows_networks: true,
            // They add up to nothing: others meet a key as its own does.
            across: gradient.across.map(|_| token.radial),
            along: self.along_keys(domain, &query, &token, &key_cosines),
            made: gathered(of_pairs, 0.0),
            response: Matrix2::from_columns(&[answers, Vector2::zeros()]),
            ..Gradient::new([token].into(), key_cosines)
        };
        [query, key, value]
    }

    /// Cosines of the gradients of queries of which each is `own`, from what two meet: differences of keys and values as the rows
    /// have them in common, and of their inputs.
    fn query_cosines(&self, gradient: &Gradient, own: f64, [between, differences]: [f64; 2]) -> Arc<[f64]> {
        let keys = &self.keys;
        let apart = (1.0 - self.row.s2).powi(2);
        let pair = |(cross, cosine): (&Cross, &f64)| {
            let passed = between * keys.passed(keys.passing, &self.row, cross.t11) + differences * apart;
            ratio(cosine * passed, own)
        };
        self.crosses.iter().zip(gradient.cosines.iter()).map(pair).collect()
    }

    /// What gradients of keys, which have these `cosines`, have along their keys together.
    fn along_keys(&self, domain: &Exchangeable, query: &Gradient, key: &TokenGradient, cosines: &[f64]) -> f64 {
        let others = domain.seq_len - 1.0;
        let [ln_query, ln_key] =
            [(query.token(), &self.query), (key, &self.key)].map(|(g, x)| g.ln_second + x.token().ln_second);
        let alike = |x: &Signal, cosines: &[f64]| domain.mean_product(&x.cosines, cosines);
        let all = 1.0 + others * alike(&self.query, &query.cosines);
        let of_queries = query.token().radial * all * share(ln_query, ln_key);
        ratio(of_queries - key.radial, others) - key.radial * alike(&self.key, cosines)
    }

    /// At a key, where E (k·g_k)² is this `radial` part of E (v·g_v)².
    fn key_token(&self, ln_second: f64, radial: f64, value: &TokenGradient) -> TokenGradient {
        let key = self.key.token();
        let radial = if ln_second > f64::NEG_INFINITY {
            let ln_values = radial.ln() + value.ln_second + self.value.token().ln_second;
            share(ln_values, ln_second + key.ln_second).min(key.width)
        } else {
            1.0
        };
        TokenGradient { radial, local: value.local, ..TokenGradient::isotropic(ln_second) }
    }

    /// At the values, which gather `all` from the squares of rows, `row` and under dropout `own`, and from pairs of queries.
    fn values(
        &self,
        domain: &Exchangeable,
        gradient: &Gradient,
        strayed: Straying,
        [row, own, all]: [f64; 3],
        [gain, excess]: [f64; 2],
    ) -> Gradient {
        let others = domain.seq_len - 1.0;
        let alignment = self.value_alignment();
        let token = TokenGradient {
            radial: 1.0 + (gradient.token().radial - 1.0) * alignment,
            constant: gradient.token().constant,
            excess,
            // Of the gradients of all queries one is the token's own.
            local: gradient.token().local / domain.seq_len,
            ..TokenGradient::isotropic(gradient.token().ln_second + gain.ln())
        };
        let cosines: Arc<[f64]> =
            self.value_pairs(domain, gradient, row).into_iter().map(|pair| ratio(pair, all)).collect();
        // Keys that happen to be alike are attended together: what pulls the averages.
        let pulled = self.pulled + others * domain.mean_product(&gradient.cosines, &self.pulls);
        let of_own = ratio(own, all);
        // Rows sum to 1: what squares lose products gain, and all of both answers as all of that at the output.
        let of_products = |cosine: f64| ratio(others * cosine, 1.0 + others * cosine);
        let [before, after] = [domain.mean(&gradient.cosines), domain.mean(&cosines)].map(of_products);
        let (pairs, answers) = (1.0 - of_own, of_own * strayed.answers(Powers::scores(self.growth[0])));
        let along_all = gradient.across.map_or(0.0, |across| (across - 1.0) * (2.0 - self.keys.value_cosine));
        Gradient {
            coupling: ratio(pulled, all),
            across: gradient.across.map(|across| 1.0 + (across - 1.0) * alignment),
            along_all: pairs * strayed.sensitivity * (along_all - (token.radial - 1.0)),
            made: gathered(pairs, ratio(before - pairs, after)),
            response: Matrix2::from_columns(&[answers, -ratio(1.0, after) * answers]),
            ..Gradient::new([token].into(), cosines)
        }
    }

    /// Queries that happen to be more alike have rows and gradients more alike: E q_a·q_c T11 g_a·g_c beyond the product of the
    /// expectations.
    fn alike_queries(&self, domain: &Exchangeable, gradient: &Gradient) -> f64 {
        let together =
            pairs_of_queries(&self.query, &self.crosses, |cosine, cross| cross.t11_weighted - cosine * cross.t11);
        domain.mean_product(&gradient.cosines, &together)
    }

    /// E (Σ_b δs_ab x_b)·(Σ_b δs_cb x_b) q_a·q_c over pairs of queries, in units of the diagonal.
    fn collected_pairs(&self, domain: &Exchangeable, gradient: &Gradient) -> f64 {
        let differences = (1.0 - self.keys.key_cosine) * (1.0 - self.keys.value_cosine) * self.leant;
        let between = pairs_of_queries(&self.query, &self.crosses, |cosine, cross| {
            (1.0 - self.keys.key_cosine) * self.keys.weighted(self.keys.passing, &self.row, cross)
                + cosine * differences * (1.0 - self.row.s2).powi(2)
        });
        domain.mean_product(&gradient.cosines, &between)
    }

    /// What a longer token changes by being attended more, beside its larger value: E (v·g_v)(k·g_k) and E (k·g_k)², in
    /// units of E (v·g_v)².
    fn longer(&self, domain: &Exchangeable, gradient: &Gradient, own: f64, all: f64, length: f64) -> [f64; 2] {
        let tilt = lengths::tilt(self.row.s2, self.keys.contrast);
        let mut sums = lengths::alone(&self.row, self.keys.contrast).map(|alone| own * alone);
        let classes = domain.classes.iter().zip(gradient.cosines.iter()).zip(&self.crosses);
        for (((class, g), cross), &cosine) in classes.zip(self.query.cosines.iter()) {
            let weight = (length - 1.0) * class.share * g * self.keys.overlap(cross.excess);
            let pair = lengths::pair(tilt, cosine);
            sums = [0, 1].map(|k| sums[k] + weight * pair[k]);
        }
        let apart = 1.0 - self.keys.value_cosine;
        let known = self.key.token().sensitivity;
        [apart * known * ratio(sums[0], all), apart * ratio(sums[1], all)]
    }

    /// cos² of the angle between a value and the output of another token.
    pub(super) fn value_alignment(&self) -> f64 {
        let average = self.keys.average;
        average * average * share(self.value.token().ln_second, self.output.token().ln_second)
    }

    /// The average over pairs of queries of the cosine of their gradients times what their rows have in common.
    fn over_pairs(&self, domain: &Exchangeable, gradient: &Gradient, of: &dyn Fn(&Cross) -> f64) -> f64 {
        let terms = domain.classes.iter().zip(gradient.cosines.iter()).zip(&self.crosses);
        terms.map(|((class, cosine), cross)| class.share * cosine * of(cross)).sum()
    }

    /// E Σ_ac A_ab A_cb' g_a·g_c per class of pairs of values, in units of E g², a row's Σ A² being `own`.
    fn value_pairs(&self, domain: &Exchangeable, gradient: &Gradient, own: f64) -> Few<f64> {
        let others = domain.seq_len - 1.0;
        let pairs = |of: &dyn Fn(&Cross) -> f64| self.over_pairs(domain, gradient, of);
        if let Some(known) = &self.keys.pairs {
            let beyond = self.row.s2 - self.keys.effective.recip();
            let class = |place: usize| {
                let between = pairs(&|cross| known.together(place, ratio(cross.excess, beyond)));
                known.together(place, 1.0) + others * between
            };
            return (0..domain.classes.len()).map(class).collect();
        }
        let shared = pairs(&|cross| 1.0 - self.keys.overlap(cross.excess));
        let mean = if others > 0.0 { (1.0 - own) / others } else { 0.0 };
        self.key_classes(domain, own, mean).into_iter().map(|pair| pair + shared).collect()
    }

    /// Cosines of the gradients of two keys.
    fn key_pairs(&self, domain: &Exchangeable) -> Arc<[f64]> {
        if let Some(known) = &self.keys.pairs {
            return known.gradients.iter().copied().collect();
        }
        let others = domain.seq_len - 1.0;
        self.key_classes(domain, 1.0, if others > 0.0 { -1.0 / others } else { 0.0 }).into_iter().collect()
    }

    /// A quantity of pairs of keys that is `same` for equal keys and `mean` on average, per class.
    fn key_classes(&self, domain: &Exchangeable, same: f64, mean: f64) -> Few<f64> {
        let distance = 1.0 - self.keys.key_cosine;
        let closeness: Few<f64> = if distance > 0.0 {
            self.key.cosines.iter().map(|cosine| (cosine - self.keys.key_cosine) / distance).collect()
        } else {
            repeat_n(0.0, self.key.cosines.len()).collect()
        };
        // Zero but for rounding, which grows where tokens are alike.
        let average = domain.mean(&closeness);
        closeness.into_iter().map(|closeness| mean + (same - mean) * (closeness - average)).collect()
    }
}
