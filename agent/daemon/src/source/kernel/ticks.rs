//! The kernel's tick counter: sockets keep their last activity in ticks, and how long a tick is can only be inferred.

use std::time::Duration;

/// Ticks per second that kernels are built with.
const RATES: [u64; 4] = [100, 250, 300, 1000];
/// The counter starts this long before it wraps in 32 bits, so that wrap errors show early.
const SECONDS_BEFORE_WRAP: i64 = 300;
/// Around this uptime all rates give the same count, so nothing can be told.
const BLIND: Duration = Duration::from_secs(10);

/// Converts ticks to durations once the rate is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    rate: Option<u64>,
}

impl Ticks {
    /// Infers the rate from the counter and the monotonic clock (nanoseconds) read together. Keeps what is known already.
    pub fn learn(&mut self, jiffies: u64, at: u64) {
        if self.rate.is_some() {
            return;
        }
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        let since_wrap = i64::try_from(jiffies).unwrap_or(i64::MAX).saturating_sub(1 << 32);
        let error = |rate: u64| {
            let seconds = since_wrap as f64 / rate as f64 + SECONDS_BEFORE_WRAP as f64;
            (seconds - at as f64 / 1e9).abs()
        };
        let mut rates = RATES.map(|rate| (error(rate), rate));
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [(best, rate), (second, _), ..] = rates;
        if best < BLIND.as_secs_f64() && second - best > BLIND.as_secs_f64() / 2.0 {
            self.rate = Some(rate);
        }
    }

    /// How long before `now` the low half of the counter was `then`; `None` while the rate is unknown, or when it lies in
    /// the future (not set yet).
    pub fn ago(&self, now: u64, then: u32) -> Option<Duration> {
        let ticks = (now as u32).wrapping_sub(then);
        if ticks > u32::MAX / 2 {
            return None;
        }
        self.rate.map(|rate| Duration::from_micros(u64::from(ticks) * 1_000_000 / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(rate: u64, uptime: u64) -> u64 {
        (1 << 32) - 300 * rate + rate * uptime
    }

    #[test]
    fn every_rate_is_recognised_young_and_old() {
        for rate in RATES {
            for uptime in [30, 200, 4000, 86_400 * 300] {
                let mut ticks = Ticks::default();
                ticks.learn(counter(rate, uptime) + 1, uptime * 1_000_000_000);
                assert_eq!(ticks.rate, Some(rate), "{uptime} s at {rate} Hz");
            }
        }
    }

    #[test]
    fn where_all_rates_agree_nothing_is_claimed_until_later() {
        let mut ticks = Ticks::default();
        ticks.learn(counter(250, 300), 300_000_000_000);
        assert_eq!(ticks.ago(counter(250, 300), 0), None);
        ticks.learn(counter(250, 900), 900_000_000_000);
        assert_eq!(ticks.ago(1000, 500), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_low_half_wraps_and_the_future_is_unknown() {
        let ticks = Ticks { rate: Some(1000) };
        assert_eq!(ticks.ago((1 << 32) + 5, u32::MAX - 4), Some(Duration::from_millis(10)));
        assert_eq!(ticks.ago(5, 6), None);
    }

    #[test]
    fn absurd_numbers_claim_nothing() {
        let mut ticks = Ticks::default();
        ticks.learn(u64::MAX, 0);
        ticks.learn(0, u64::MAX);
        assert_eq!(ticks.rate, None);
    }
}
