//! The rows of a table, from the replicates.

use sigprop_stack::{SiteRow, SiteTable, Stack, WeightRow};

use crate::{
    Settings,
    controls::Controls,
    plan::Plan,
    sample::Replicate,
    statistics::{Moments, jackknife, spread},
};

/// Returns the table with every row and every tensor of the plan.
pub(crate) fn table(stack: &Stack, plan: &Plan, settings: &Settings, replicates: &[Replicate]) -> SiteTable {
    SiteTable { sites: site_rows(stack, plan, settings, replicates), weights: weight_rows(plan, replicates) }
}

/// Returns the path of the earliest site that left the range of f32 in any replicate; `None` if none did.
pub(crate) fn first_overflow(replicates: &[Replicate]) -> Option<String> {
    let overflows = replicates.iter().filter_map(|replicate| replicate.overflow.as_ref());
    overflows.min_by_key(|first| first.step).map(|overflow| overflow.site.clone())
}

fn site_rows(stack: &Stack, plan: &Plan, settings: &Settings, replicates: &[Replicate]) -> Vec<SiteRow> {
    let inputs: Vec<&[Moments]> = replicates.iter().map(|replicate| replicate.inputs.as_slice()).collect();
    let controls = if settings.controls { Controls::new(stack, &inputs) } else { None };
    let gather = |moments: &dyn Fn(&Replicate) -> Option<Moments>| replicates.iter().map(moments).collect();
    let adjust = |all: &Vec<Moments>| controls.as_ref().map_or_else(|| all.clone(), |controls| controls.adjust(all));
    let rows = plan.rows.iter().enumerate().map(|(index, row)| {
        let signals: Option<Vec<Moments>> = gather(&|replicate| replicate.signals.get(index).copied());
        let adjusted = signals.as_ref().map(adjust);
        let signal = |quantity: fn(&Moments) -> Option<f64>| jackknife(adjusted.as_ref()?, quantity);
        let met = plan.backward.iter().position(|&row| row == index);
        let gradients = met.and_then(|met| gather(&|replicate| replicate.gradients.get(met).copied()));
        let adjusted = gradients.as_ref().map(adjust);
        let gradient = |quantity: fn(&Moments) -> Option<f64>| jackknife(adjusted.as_ref()?, quantity);
        SiteRow {
            layer: row.layer,
            site: row.site.clone(),
            is_stream_site: row.is_stream_site,
            cells: [
                signal(|pooled| Some(pooled.mean())),
                signal(|pooled| Some(pooled.variance())),
                signal(Moments::token_correlation),
                gradient(|pooled| Some(pooled.second_moment())),
                gradient(Moments::grad_token_correlation),
                signal(|pooled| pooled.variance_at(0)),
                signal(|pooled| pooled.variance_at(1)),
                gradient(|pooled| pooled.second_moment_at(0)),
                gradient(|pooled| pooled.second_moment_at(1)),
                signals.as_ref().and_then(|own| spread(own, Moments::variance)),
                gradients.as_ref().and_then(|own| spread(own, Moments::second_moment)),
            ],
        }
    });
    rows.collect()
}

fn weight_rows(plan: &Plan, replicates: &[Replicate]) -> Vec<WeightRow> {
    let rows = plan.tensors.iter().enumerate().filter_map(|(index, planned)| {
        // The tensors of all experts are reported as one.
        if planned.expert.is_some_and(|expert| expert > 0) {
            return None;
        }
        let alike: Vec<usize> = (index..plan.tensors.len())
            .filter(|&other| other == index || plan.tensors[other].is_expert_beside(planned))
            .collect();
        let pooled: Option<Vec<Moments>> = replicates
            .iter()
            .map(|replicate| alike.iter().map(|&i| replicate.weights[i]).reduce(|a, b| Some(a? + b?)).flatten())
            .collect();
        Some(WeightRow {
            layer: planned.layer,
            tensor: planned.tensor.name.clone(),
            variance: planned.tensor.init.variance(),
            grad_second_moment: jackknife(&pooled?, |pooled| Some(pooled.second_moment()))?,
        })
    });
    rows.collect()
}
