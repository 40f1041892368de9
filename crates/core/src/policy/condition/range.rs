//! Combines the numeric bounds of one rule: can any value satisfy them all?

use serde_json::Value;

use super::read::RuleScope;
use super::{ComparisonOperator, Quantifier, RuleCondition};
use crate::capability::ParamKind;
use crate::policy::fault::{FaultCollector, SourcePosition};
use crate::policy::suggest::escape;

/// Bounds that exclude each other.
pub(super) fn refuse_contradictions(
    conditions: &[(SourcePosition, RuleCondition)],
    scope: &RuleScope<'_>,
    faults: &mut FaultCollector<'_>,
) {
    let mut seen: Vec<&str> = Vec::new();
    for (place, condition) in conditions {
        let argument = match condition {
            RuleCondition::Compare { argument, .. } => &**argument,
            RuleCondition::ContentSize { .. } => "content_size",
            _ => continue,
        };
        if seen.contains(&argument) {
            continue;
        }
        seen.push(argument);
        let whole = argument == "content_size" || scope.kinds(argument).iter().all(|kind| *kind == ParamKind::Integer);
        let whole = whole && (argument == "content_size" || !scope.is_open());
        let bounds = conditions.iter().filter_map(|(_, other)| match other {
            RuleCondition::Compare { argument: own, by, bound } if &**own == argument => Some((*by, *bound)),
            RuleCondition::ContentSize { by, bound } if argument == "content_size" => Some((*by, *bound as f64)),
            _ => None,
        });
        let range = bounds.fold(NumericInterval::default(), |range, (by, bound)| range.narrow(by, bound, whole));
        let values = conditions.iter().find_map(|(_, other)| match other {
            RuleCondition::OneOf { argument: own, of: Quantifier::Every, values } if &**own == argument => Some(values),
            _ => None,
        });
        let none_fits =
            values.is_some_and(|values| !values.iter().filter_map(Value::as_f64).any(|value| range.holds(value)));
        if range.is_empty() || none_fits {
            faults
                .error(
                    *place,
                    "policy.impossible_condition",
                    format!("no `{}` fulfils all these conditions", escape(argument)),
                )
                .why("the rule could never apply");
        }
    }
}

/// Numbers between two bounds.
#[derive(Clone, Copy)]
struct NumericInterval {
    low: f64,
    low_open: bool,
    high: f64,
    high_open: bool,
}

impl Default for NumericInterval {
    fn default() -> Self {
        Self { low: f64::NEG_INFINITY, low_open: false, high: f64::INFINITY, high_open: false }
    }
}

impl NumericInterval {
    fn narrow(mut self, by: ComparisonOperator, bound: f64, whole: bool) -> Self {
        // Among whole numbers `> 5` is `>= 6`.
        let (by, bound) = match by {
            ComparisonOperator::Gt if whole => (ComparisonOperator::Gte, bound.floor() + 1.0),
            ComparisonOperator::Lt if whole => (ComparisonOperator::Lte, bound.ceil() - 1.0),
            other => (other, bound),
        };
        match by {
            ComparisonOperator::Gt if bound >= self.low => (self.low, self.low_open) = (bound, true),
            ComparisonOperator::Gte if bound > self.low => (self.low, self.low_open) = (bound, false),
            ComparisonOperator::Lt if bound <= self.high => (self.high, self.high_open) = (bound, true),
            ComparisonOperator::Lte if bound < self.high => (self.high, self.high_open) = (bound, false),
            ComparisonOperator::Gt | ComparisonOperator::Gte | ComparisonOperator::Lt | ComparisonOperator::Lte => {}
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.low > self.high || (self.low >= self.high && (self.low_open || self.high_open))
    }

    fn holds(&self, value: f64) -> bool {
        let above = value > self.low || (value >= self.low && !self.low_open);
        let below = value < self.high || (value <= self.high && !self.high_open);
        above && below
    }
}
