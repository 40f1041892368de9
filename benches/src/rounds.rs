//! Rounds: two ways of doing the same thing, in turns, so that both meet the same weather.
//!
//! Takes work that says how long it took; gives medians and the median of the ratios round by round.
//! Promise: the order alternates, and a first round that only warms up is thrown away.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What one run of one side took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// How many things were done.
    pub count: u64,
    /// On the clock on the wall.
    pub wall: Duration,
    /// On the processors, by this process (not by a database server beside it).
    pub cpu: Duration,
}

impl Took {
    /// Things per second of wall time.
    pub fn per_second(&self) -> f64 {
        ratio(self.count as f64, self.wall.as_secs_f64())
    }

    /// Processor time for each.
    pub fn cpu_nanos(&self) -> f64 {
        ratio(self.cpu.as_nanos() as f64, self.count as f64)
    }
}

/// Both sides over all rounds.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Ours, round by round.
    pub ours: Vec<Took>,
    /// The floor or the peer, round by round.
    pub floor: Vec<Took>,
}

/// A median with the range it was taken from.
#[derive(Debug, Clone, Copy)]
pub struct Median {
    /// The middle one.
    pub middle: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Pair {
    /// One figure of each round of ours against the floor's of the same round.
    pub fn ratio(&self, figure: impl Fn(&Took) -> f64) -> Median {
        median(self.ours.iter().zip(&self.floor).map(|(ours, floor)| ratio(figure(ours), figure(floor))).collect())
    }
}

/// The median of one figure of one side.
pub fn of(side: &[Took], figure: impl Fn(&Took) -> f64) -> f64 {
    median(side.iter().map(figure).collect()).middle
}

/// Runs both sides in turns; the first round does not count.
pub fn in_turns(
    rounds: usize,
    mut ours: impl FnMut() -> anyhow::Result<Took>,
    mut floor: impl FnMut() -> anyhow::Result<Took>,
) -> anyhow::Result<Pair> {
    let mut pair = Pair { ours: Vec::new(), floor: Vec::new() };
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

/// Times work that does `count` things.
pub fn timed<T>(count: u64, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Took, T)> {
    let (wall, cpu) = (Instant::now(), processor(ClockId::ProcessCPUTime));
    let done = work()?;
    let took = Took { count, wall: wall.elapsed(), cpu: processor(ClockId::ProcessCPUTime).saturating_sub(cpu) };
    Ok((took, done))
}

/// The same for work on this thread alone: other threads do not count.
pub fn timed_here<T>(count: u64, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Took, T)> {
    let (wall, cpu) = (Instant::now(), processor(ClockId::ThreadCPUTime));
    let done = work()?;
    let took = Took { count, wall: wall.elapsed(), cpu: processor(ClockId::ThreadCPUTime).saturating_sub(cpu) };
    Ok((took, done))
}

fn processor(clock: ClockId) -> Duration {
    let spent = clock_gettime(clock);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// The median of some figures.
pub fn median(mut figures: Vec<f64>) -> Median {
    figures.sort_by(f64::total_cmp);
    let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
    let half = figures.len() / 2;
    let middle = if figures.len() % 2 == 0 { f64::midpoint(at(half.saturating_sub(1)), at(half)) } else { at(half) };
    Median { middle, low: at(0), high: at(figures.len().saturating_sub(1)) }
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
            Ok(Took { count, wall: Duration::from_secs(1), cpu: Duration::ZERO })
        };
        let pair = in_turns(2, || side('o', 1), || side('f', 2)).unwrap();
        assert_eq!(*order.borrow(), "foof".to_owned() + "fo");
        assert_eq!((pair.ours.len(), pair.floor.len()), (2, 2));
        assert_eq!(pair.ratio(Took::per_second).middle, 0.5);
    }
}
