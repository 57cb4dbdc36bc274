//! Tells that the computer slept: meanwhile the wall clock goes on, and the one we count by stands still. Pure.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The wall clock ahead by this much more than it should be means that the computer slept. Set by hand, it looks the
/// same, which does no harm.
const JUMP: Duration = Duration::from_secs(10);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub(super) wall: SystemTime,
    pub(super) ours: Instant,
}

impl Clocks {
    pub(super) fn now() -> Self {
        Self { wall: SystemTime::now(), ours: Instant::now() }
    }

    /// Whether the computer slept since that moment.
    pub(super) fn slept_since(&self, before: &Self) -> bool {
        let wall = self.wall.duration_since(before.wall).unwrap_or_default();
        wall > self.ours.duration_since(before.ours) + JUMP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_jump_of_the_wall_clock_is_sleep() {
        let before = Clocks::now();
        let slept = |wall: i64, ours: u64| {
            let step = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { before.wall - step } else { before.wall + step };
            Clocks { wall, ours: before.ours + Duration::from_secs(ours) }.slept_since(&before)
        };
        assert!(slept(3600, 2) && slept(13, 2));
        assert!(!slept(2, 2) && !slept(60, 58), "it may be busy");
        assert!(!slept(-3600, 2), "set back by hand");
    }
}
