//! Rounds: two ways of doing the same work, in turns, so that both run under the same conditions.
//!
//! Takes work that reports how long it took; gives medians and the median of the ratios round by round. Promise: the
//! order alternates, and a first warm-up round is dropped.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The cost of one run of one side.
#[derive(Debug, Clone, Copy)]
pub struct RunTimes {
    /// The number of items that were done.
    pub count: u64,
    /// Wall time.
    pub wall: Duration,
    /// Processor time of this process (not of a database server beside it).
    pub cpu: Duration,
}

impl RunTimes {
    /// Items per second of wall time.
    pub fn per_second(&self) -> f64 {
        ratio(self.count as f64, self.wall.as_secs_f64())
    }

    /// Processor time for each item, in nanoseconds.
    pub fn cpu_nanos(&self) -> f64 {
        ratio(self.cpu.as_nanos() as f64, self.count as f64)
    }
}

/// Both sides over all rounds.
#[derive(Debug, Clone)]
pub struct PairedRounds {
    /// Ours, round by round.
    pub ours: Vec<RunTimes>,
    /// The floor or the peer, round by round.
    pub floor: Vec<RunTimes>,
}

/// A median with the range of its values.
#[derive(Debug, Clone, Copy)]
pub struct MedianRange {
    /// The median.
    pub middle: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

impl PairedRounds {
    /// The ratio of one figure of ours to the floor's, in the same round.
    pub fn ratio(&self, figure: impl Fn(&RunTimes) -> f64) -> MedianRange {
        median(self.ours.iter().zip(&self.floor).map(|(ours, floor)| ratio(figure(ours), figure(floor))).collect())
    }
}

/// The median of one figure of one side.
pub fn of(side: &[RunTimes], figure: impl Fn(&RunTimes) -> f64) -> f64 {
    median(side.iter().map(figure).collect()).middle
}

/// Runs both sides in turns; the first round does not count.
pub fn in_turns(
    rounds: usize,
    mut ours: impl FnMut() -> anyhow::Result<RunTimes>,
    mut floor: impl FnMut() -> anyhow::Result<RunTimes>,
) -> anyhow::Result<PairedRounds> {
    let mut pair = PairedRounds { ours: Vec::new(), floor: Vec::new() };
    for round in 0..=rounds {
        let (one, other) = if round % 2 == 0 {
            let floor = floor()?;
            (ours()?, floor)
        } else {
            (ours()?, floor()?)
        };
        if round > 0 {
            pair.ours.push(one);
            pair.floor.push(other);
        }
    }
    Ok(pair)
}

/// Times work on `count` items.
pub fn timed<T>(count: u64, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(RunTimes, T)> {
    let (wall, cpu) = (Instant::now(), processor(ClockId::ProcessCPUTime));
    let done = work()?;
    let took = RunTimes { count, wall: wall.elapsed(), cpu: processor(ClockId::ProcessCPUTime).saturating_sub(cpu) };
    Ok((took, done))
}

/// The same for work on this thread alone: other threads do not count.
pub fn timed_here<T>(count: u64, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(RunTimes, T)> {
    let (wall, cpu) = (Instant::now(), processor(ClockId::ThreadCPUTime));
    let done = work()?;
    let took = RunTimes { count, wall: wall.elapsed(), cpu: processor(ClockId::ThreadCPUTime).saturating_sub(cpu) };
    Ok((took, done))
}

fn processor(clock: ClockId) -> Duration {
    let spent = clock_gettime(clock);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// The median of some figures.
pub fn median(mut figures: Vec<f64>) -> MedianRange {
    figures.sort_by(f64::total_cmp);
    let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
    let half = figures.len() / 2;
    let middle = if figures.len() % 2 == 0 { f64::midpoint(at(half.saturating_sub(1)), at(half)) } else { at(half) };
    MedianRange { middle, low: at(0), high: at(figures.len().saturating_sub(1)) }
}

fn ratio(over: f64, under: f64) -> f64 {
    if under > 0.0 { over / under } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).middle, 2.0);
        let four = median(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((four.middle, four.low, four.high), (2.5, 1.0, 4.0));
        assert!(median(Vec::new()).middle.is_nan());
    }

    #[test]
    fn the_first_round_is_thrown_away_and_the_order_alternates() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: char, count: u64| {
            order.borrow_mut().push(name);
            Ok(RunTimes { count, wall: Duration::from_secs(1), cpu: Duration::ZERO })
        };
        let pair = in_turns(2, || side('o', 1), || side('f', 2)).unwrap();
        assert_eq!(*order.borrow(), "foof".to_owned() + "fo");
        assert_eq!((pair.ours.len(), pair.floor.len()), (2, 2));
        assert_eq!(pair.ratio(RunTimes::per_second).middle, 0.5);
    }
}
