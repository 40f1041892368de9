//! Conditions about time: parts of the day, and how often within a window.

use jiff::tz::TimeZone;

use super::WeeklyHours;
use super::read::ConditionParser;
use crate::clock::Millis;
use crate::policy::fault::{FaultCollector, SourcePosition};
use crate::policy::suggest::{closest, escape};
use crate::policy::yaml::{YamlKey, YamlNode, YamlValue};
use crate::tier::Tier;

/// Days as `hours.days` writes them.
pub(crate) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
pub(crate) const ALL_DAYS: u8 = 0b111_1111;
/// Longest rate window.
const WINDOW: Millis = Millis::from_hours(31 * 24);

/// At most this many calls of one agent in a sliding window; more raise the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleRateLimit {
    /// Calls that pass.
    pub max: u64,
    /// Within this time.
    pub window: Millis,
    /// Tier for the calls after that.
    pub on_exceed: Tier,
}

impl ConditionParser<'_, '_, '_> {
    pub(super) fn hours(&mut self) -> Option<WeeklyHours> {
        let fields = FixedKeyMap::of(self.value, &["from", "to", "days", "zone"], &self.key.text, self.faults)?;
        let from = fields.clock("from", self.faults)?;
        let to = fields.clock("to", self.faults)?;
        if from == 24 * 60 {
            return self.impossible("`from` is the end of the day");
        }
        if from == to || (from == 0 && to == 0) {
            return self.impossible("`from` and `to` are the same");
        }
        let Some(zone) = fields.get("zone") else {
            self.faults
                .error(self.key.place, "policy.missing_key", "`hours` needs a `zone`")
                .hint("for example `zone: Europe/Berlin` or `zone: UTC`");
            return None;
        };
        let Some(zone_name) = zone.as_text() else {
            self.faults.error(zone.place, "policy.type", "`zone` must be the name of a time zone");
            return None;
        };
        let Ok(tz) = TimeZone::get(zone_name) else {
            self.faults
                .error(zone.place, "policy.value", format!("`{}` is not a time zone", escape(zone_name)))
                .hint("use a name of the IANA database such as `Europe/Berlin`");
            return None;
        };
        let days = match fields.get("days") {
            None => ALL_DAYS,
            Some(node) => Self::days(node, self.faults)?,
        };
        Some(WeeklyHours { from, to, days, zone: tz, zone_name: zone_name.into() })
    }

    fn days(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<u8> {
        let YamlValue::List(items) = &node.kind else {
            faults.error(node.place, "policy.type", "`days` must be a list such as `[mon, tue]`");
            return None;
        };
        let mut days = 0;
        for item in items {
            let found = item.as_text().and_then(|text| DAYS.iter().position(|day| *day == text));
            let Some(day) = found else {
                faults
                    .error(item.place, "policy.value", "not a day")
                    .why("days are mon, tue, wed, thu, fri, sat, sun")
                    .suggest_word(
                        item.as_text()
                            .and_then(|text| DAYS.into_iter().find(|day| text.to_lowercase().starts_with(day))),
                    );
                return None;
            };
            days |= 1 << day;
        }
        if days == 0 {
            faults
                .error(node.place, "policy.impossible_condition", "`days` is empty")
                .why("the rule could never apply");
            return None;
        }
        Some(days)
    }

    pub(super) fn rate(&mut self) -> Option<RuleRateLimit> {
        let fields = FixedKeyMap::of(self.value, &["max", "window", "on_exceed"], &self.key.text, self.faults)?;
        let (Some(max), Some(window)) = (fields.get("max"), fields.get("window")) else {
            self.faults
                .error(self.key.place, "policy.missing_key", "`rate_limit` needs `max` and `window`")
                .hint("for example `rate_limit: {max: 5, window: 10m}`");
            return None;
        };
        let max = match max.kind {
            YamlValue::Integer(n) if n >= 1 => n.unsigned_abs(),
            _ => {
                self.faults
                    .error(max.place, "policy.value", "`max` must be a whole number of at least 1")
                    .hint("to allow no call at all, set the `tier` of the rule");
                return None;
            }
        };
        let span = match &window.kind {
            YamlValue::Integer(seconds) => u64::try_from(*seconds).ok().map(Millis::from_secs),
            YamlValue::Text(text) => span_of(text),
            _ => None,
        };
        let Some(window) = span.filter(|span| *span > Millis::ZERO && *span <= WINDOW) else {
            self.faults
                .error(
                    window.place,
                    "policy.value",
                    "`window` must be a time such as `10m`, `1h` or a number of seconds",
                )
                .why(format!("it lies between 1 s and {WINDOW}"));
            return None;
        };
        let on_exceed = match fields.get("on_exceed") {
            None => Tier::ApprovalRequired,
            Some(node) => crate::policy::rule::tier(node, "on_exceed", self.faults)?,
        };
        Some(RuleRateLimit { max, window, on_exceed })
    }
}

/// `90s`, `10m`, `2h`, `1d`.
fn span_of(text: &str) -> Option<Millis> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Millis::from_secs)
}

/// A map with fixed keys.
struct FixedKeyMap<'n>(&'n [(YamlKey, YamlNode)]);

impl<'n> FixedKeyMap<'n> {
    fn of(node: &'n YamlNode, keys: &[&str], what: &str, faults: &mut FaultCollector<'_>) -> Option<Self> {
        let YamlValue::Map(entries) = &node.kind else {
            faults.error(node.place, "policy.type", format!("`{what}` must be a map with {}", keys.join(", ")));
            return None;
        };
        let mut known = true;
        for (key, _) in entries {
            if !keys.contains(&key.text.as_str()) {
                known = false;
                faults
                    .error(key.place, "policy.unknown_key", format!("unknown key `{}` in `{what}`", escape(&key.text)))
                    .why(format!("`{what}` has the keys {}", keys.join(", ")))
                    .suggest_word(closest(&key.text, keys.iter().copied()));
            }
        }
        known.then_some(Self(entries))
    }

    fn get(&self, name: &str) -> Option<&'n YamlNode> {
        self.0.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
    }

    /// `08:30` as minutes; `24:00` is the end of the day.
    fn clock(&self, name: &str, faults: &mut FaultCollector<'_>) -> Option<u16> {
        let node = self.get(name);
        let parsed = node.and_then(YamlNode::as_text).and_then(|text| {
            let (hour, minute) = text.split_once(':')?;
            let two_digits = |text: &str| {
                (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
            };
            let (hour, minute): (u16, u16) = (two_digits(hour)?, two_digits(minute)?);
            (minute < 60 && (hour < 24 || (hour == 24 && minute == 0))).then_some(hour * 60 + minute)
        });
        if parsed.is_none() {
            let place = node.map_or_else(
                || self.0.first().map_or_else(SourcePosition::default, |(key, _)| key.place),
                |node| node.place,
            );
            faults.error(place, "policy.value", format!("`{name}` must be a time of day such as `\"08:00\"`"));
        }
        parsed
    }
}
