//! Decides what a server's task does next. Pure: time and chance come in as values.

use std::time::Duration;

use ptc_protocol::api::ServerState;

/// First delay of the backoff; doubles with every failure.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// No delay is longer.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// First delay after a failure that needs a person: it may be set right at any time, but not by us.
const SLOW_DELAY: Duration = Duration::from_secs(10);

/// A server that asks for a delay gets at most this one.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Delay after a server asked for a sign-in.
const SIGN_IN_DELAY: Duration = Duration::from_secs(300);

/// A connection that lasted so long counts as healthy: the backoff starts from its beginning again.
pub(super) const HEALTHY: Duration = Duration::from_secs(30);

/// After a wake from sleep, waiting servers are tried again spread over this time.
const WAKE_SPREAD: Duration = Duration::from_secs(2);

/// A server that has failed so often in a row is likely to be there again after its delay.
const BRIEF_FAILURES: u32 = 2;

/// No delay that is worth a wait is longer.
const BRIEF_DELAY: Duration = Duration::from_secs(2);

/// A moment: time since the daemon started, on a clock that never goes back.
pub(super) type Moment = Duration;

/// Where a server is, and how often in a row it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Failures since the last healthy time.
    pub(super) failures: u32,
}

/// Where a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Disabled,
    Stopped,
    Starting,
    /// Starting, in place of a session that the server has ended: what it offers is known.
    Renewing,
    Ready {
        since: Moment,
    },
    Stopping {
        then: Then,
    },
    Backoff {
        until: Moment,
    },
    Failed {
        until: Moment,
    },
    NeedsSignIn {
        until: Moment,
    },
}

/// What follows a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Stop,
    Disable,
    Start,
    Renew,
    Retry(Retry),
}

/// How a failed server is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// At once, if it has not failed lately: there is nothing to wait for.
    Now,
    /// With backoff.
    Soon,
    /// With backoff, but not before this time has passed.
    After(Duration),
    /// With a slower backoff: it cannot work as configured.
    Slowly,
    /// Hardly ever: a person must sign in.
    AfterSignIn,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It shall run, from now on and at once: at boot, on `restart`, after a change of its settings.
    Start,
    /// It shall not run.
    Stop,
    /// It shall not run since it is disabled.
    Disable,
    /// The start has succeeded.
    Connected,
    /// The start has failed.
    StartFailed(Retry),
    /// The connection is gone.
    Lost(Retry),
    /// The close has finished: no process is left.
    Closed,
    /// The time in [`State::due`] has come.
    Due,
    /// The computer woke up, or its clock jumped.
    Woke,
}

/// What the driver does after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Begin to connect; answered by `Connected` or `StartFailed`.
    Open,
    /// Close whatever there is; answered by `Closed`.
    Close,
}

impl State {
    /// A server that has not been started.
    pub(super) const fn new() -> Self {
        Self { phase: Phase::Stopped, failures: 0 }
    }

    /// When the state wants a [`Event::Due`].
    pub(super) const fn due(&self) -> Option<Moment> {
        match self.phase {
            Phase::Backoff { until } | Phase::Failed { until } | Phase::NeedsSignIn { until } => Some(until),
            Phase::Disabled
            | Phase::Stopped
            | Phase::Starting
            | Phase::Renewing
            | Phase::Ready { .. }
            | Phase::Stopping { .. } => None,
        }
    }

    /// Whether the tools stay in the catalog: a session that is replaced is no reason for programs to miss any.
    pub(super) const fn offers_tools(&self) -> bool {
        match self.phase {
            Phase::Ready { .. } | Phase::Stopping { then: Then::Renew } | Phase::Renewing => true,
            Phase::Disabled
            | Phase::Stopped
            | Phase::Starting
            | Phase::Stopping { .. }
            | Phase::Backoff { .. }
            | Phase::Failed { .. }
            | Phase::NeedsSignIn { .. } => false,
        }
    }

    /// Whether it is on its way, or will be within a moment: whoever wants it had better wait than fail.
    pub(super) fn comes_back(&self, now: Moment) -> bool {
        match self.phase {
            Phase::Starting | Phase::Renewing | Phase::Stopping { then: Then::Start | Then::Renew } => true,
            Phase::Stopping { then: Then::Retry(Retry::Now | Retry::Soon) } => self.failures < BRIEF_FAILURES,
            Phase::Backoff { until } => self.failures <= BRIEF_FAILURES && until <= now + BRIEF_DELAY,
            Phase::Disabled
            | Phase::Stopped
            | Phase::Ready { .. }
            | Phase::Stopping { then: Then::Stop | Then::Disable | Then::Retry(_) }
            | Phase::Failed { .. }
            | Phase::NeedsSignIn { .. } => false,
        }
    }

    /// The state as `status` shows it.
    pub(super) const fn shown(&self) -> ServerState {
        match self.phase {
            Phase::Disabled => ServerState::Disabled,
            Phase::Stopped => ServerState::Stopped,
            Phase::Starting | Phase::Renewing => ServerState::Starting,
            Phase::Ready { .. } => ServerState::Ready,
            Phase::Stopping { .. } => ServerState::Stopping,
            Phase::Backoff { .. } => ServerState::Backoff,
            Phase::Failed { .. } => ServerState::Failed,
            Phase::NeedsSignIn { .. } => ServerState::NeedsSignIn,
        }
    }

    /// The next state, and what to do. `jitter` is a fresh random number in `0.0..1.0`.
    pub(super) fn step(self, event: Event, now: Moment, jitter: f64) -> (Self, Action) {
        let to = |phase, action| (Self { phase, ..self }, action);
        let fresh = |phase, action| (Self { phase, failures: 0 }, action);
        let stay = (self, Action::Nothing);
        match (self.phase, event) {
            (Phase::Starting | Phase::Renewing | Phase::Ready { .. }, Event::Start) => {
                to(Phase::Stopping { then: Then::Start }, Action::Close)
            }
            (Phase::Starting | Phase::Renewing | Phase::Ready { .. }, Event::Stop) => {
                to(Phase::Stopping { then: Then::Stop }, Action::Close)
            }
            (Phase::Starting | Phase::Renewing | Phase::Ready { .. }, Event::Disable) => {
                to(Phase::Stopping { then: Then::Disable }, Action::Close)
            }
            (Phase::Stopping { .. }, Event::Start) => to(Phase::Stopping { then: Then::Start }, Action::Nothing),
            (Phase::Stopping { .. }, Event::Stop) => to(Phase::Stopping { then: Then::Stop }, Action::Nothing),
            (Phase::Stopping { .. }, Event::Disable) => to(Phase::Stopping { then: Then::Disable }, Action::Nothing),
            (_, Event::Start) => fresh(Phase::Starting, Action::Open),
            (_, Event::Stop) => fresh(Phase::Stopped, Action::Nothing),
            (_, Event::Disable) => fresh(Phase::Disabled, Action::Nothing),

            (Phase::Starting | Phase::Renewing, Event::Connected) => to(Phase::Ready { since: now }, Action::Nothing),
            (Phase::Starting | Phase::Renewing, Event::StartFailed(retry)) => {
                to(Phase::Stopping { then: Then::Retry(retry) }, Action::Close)
            }
            (Phase::Starting | Phase::Renewing, Event::Lost(retry)) => {
                to(Phase::Stopping { then: Then::Retry(retry) }, Action::Close)
            }
            (Phase::Ready { since }, Event::Lost(retry)) => {
                let failures = if now.saturating_sub(since) >= HEALTHY { 0 } else { self.failures };
                let then = if retry == Retry::Now && failures == 0 { Then::Renew } else { Then::Retry(retry) };
                (Self { phase: Phase::Stopping { then }, failures }, Action::Close)
            }

            (Phase::Stopping { then: Then::Stop }, Event::Closed) => fresh(Phase::Stopped, Action::Nothing),
            (Phase::Stopping { then: Then::Disable }, Event::Closed) => fresh(Phase::Disabled, Action::Nothing),
            (Phase::Stopping { then: Then::Start }, Event::Closed) => fresh(Phase::Starting, Action::Open),
            (Phase::Stopping { then: Then::Renew }, Event::Closed) => {
                (Self { phase: Phase::Renewing, failures: 1 }, Action::Open)
            }
            (Phase::Stopping { then: Then::Retry(Retry::Now) }, Event::Closed) if self.failures == 0 => {
                (Self { phase: Phase::Starting, failures: 1 }, Action::Open)
            }
            (Phase::Stopping { then: Then::Retry(retry) }, Event::Closed) => {
                let backoff = delay(FIRST_DELAY, self.failures, jitter);
                let phase = match retry {
                    Retry::Now | Retry::Soon => Phase::Backoff { until: now + backoff },
                    // Never earlier than asked, and not all clients in the same instant.
                    Retry::After(asked) => {
                        let asked = asked.min(LONGEST_WAIT);
                        Phase::Backoff { until: now + backoff.max(asked + asked.mul_f64(0.1 * jitter)) }
                    }
                    Retry::Slowly => Phase::Failed { until: now + delay(SLOW_DELAY, self.failures, jitter) },
                    Retry::AfterSignIn => Phase::NeedsSignIn { until: now + SIGN_IN_DELAY },
                };
                (Self { phase, failures: self.failures.saturating_add(1) }, Action::Nothing)
            }

            (Phase::Backoff { until } | Phase::Failed { until } | Phase::NeedsSignIn { until }, Event::Due)
                if now >= until =>
            {
                to(Phase::Starting, Action::Open)
            }
            (Phase::Backoff { until }, Event::Woke) => {
                to(Phase::Backoff { until: until.min(now + WAKE_SPREAD.mul_f64(jitter)) }, Action::Nothing)
            }
            (Phase::Failed { until }, Event::Woke) => {
                to(Phase::Failed { until: until.min(now + WAKE_SPREAD.mul_f64(jitter)) }, Action::Nothing)
            }
            (
                _,
                Event::Connected | Event::StartFailed(_) | Event::Lost(_) | Event::Closed | Event::Due | Event::Woke,
            ) => stay,
        }
    }
}

/// `first` doubled for every failure, up to the longest, a quarter shorter or longer by chance.
fn delay(first: Duration, failures: u32, jitter: f64) -> Duration {
    let doubled = first.saturating_mul(2_u32.saturating_pow(failures.min(16)));
    doubled.min(LONGEST_DELAY).mul_f64(0.75 + 0.5 * jitter.clamp(0.0, 1.0)).min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Start),
            Just(Event::Stop),
            Just(Event::Disable),
            Just(Event::Connected),
            Just(Event::StartFailed(Retry::Soon)),
            Just(Event::StartFailed(Retry::Slowly)),
            Just(Event::StartFailed(Retry::AfterSignIn)),
            Just(Event::StartFailed(Retry::After(Duration::from_secs(7)))),
            Just(Event::Lost(Retry::Now)),
            Just(Event::Lost(Retry::Soon)),
            Just(Event::Lost(Retry::AfterSignIn)),
            Just(Event::Closed),
            Just(Event::Due),
            Just(Event::Woke),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: never a second process, never a state without a way on, never a
        /// wait over the cap.
        #[test]
        fn any_history_keeps_the_rules(history in prop::collection::vec((events(), 0..90_000_u64, 0.0..1.0_f64), 0..80)) {
            let mut state = State::new();
            let mut now = Duration::ZERO;
            let mut open = false;
            let mut closing = false;
            for (event, millis, jitter) in history {
                now += Duration::from_millis(millis);
                // The driver reports only what can happen.
                let possible = match event {
                    Event::Connected | Event::StartFailed(_) | Event::Lost(_) => open && !closing,
                    Event::Closed => closing,
                    Event::Due => state.due().is_some_and(|due| due <= now),
                    Event::Start | Event::Stop | Event::Disable | Event::Woke => true,
                };
                if !possible {
                    continue;
                }
                if event == Event::Closed {
                    open = false;
                    closing = false;
                }
                let (next, action) = state.step(event, now, jitter);
                match action {
                    Action::Open => {
                        prop_assert!(!open, "{state:?} {event:?} opens a second time");
                        open = true;
                    }
                    Action::Close => {
                        prop_assert!(open && !closing, "{state:?} {event:?} closes what is not open");
                        closing = true;
                    }
                    Action::Nothing => {}
                }
                state = next;
                match state.phase {
                    Phase::Starting | Phase::Renewing | Phase::Ready { .. } => prop_assert!(open && !closing),
                    Phase::Stopping { .. } => prop_assert!(closing),
                    Phase::Backoff { until } | Phase::Failed { until } => {
                        prop_assert!(!open);
                        prop_assert!(until <= now + LONGEST_DELAY);
                    }
                    Phase::NeedsSignIn { until } => prop_assert!(!open && until <= now + SIGN_IN_DELAY),
                    Phase::Stopped | Phase::Disabled => prop_assert!(!open),
                }
            }
            // It never gives up, and a start always works: at once, or when the close under way has finished.
            if let Some(due) = state.due() {
                prop_assert_eq!(state.step(Event::Due, due, 0.5).1, Action::Open);
            }
            let (mut started, mut action) = state.step(Event::Start, now, 0.5);
            if action != Action::Open {
                prop_assert_eq!(started.phase, Phase::Stopping { then: Then::Start });
                (started, action) = started.step(Event::Closed, now, 0.5);
            }
            prop_assert_eq!((started.phase, action), (Phase::Starting, Action::Open));
        }

        /// A server that connects and exits at once is not started over and over.
        #[test]
        fn a_crash_loop_backs_off(jitters in prop::collection::vec(0.0..1.0_f64, 40), uptime in 1..20_u64) {
            let (mut state, _) = State::new().step(Event::Start, Duration::ZERO, 0.0);
            let mut now = Duration::ZERO;
            let mut starts = 1;
            for jitter in jitters {
                state = state.step(Event::Connected, now, jitter).0;
                now += Duration::from_millis(uptime);
                state = state.step(Event::Lost(Retry::Soon), now, jitter).0;
                state = state.step(Event::Closed, now, jitter).0;
                now = state.due().unwrap();
                state = state.step(Event::Due, now, jitter).0;
                prop_assert_eq!(state.phase, Phase::Starting);
                starts += u32::from(now <= Duration::from_secs(60));
            }
            prop_assert!(starts <= 10, "{} starts in the first minute", starts);
        }
    }

    #[test]
    fn a_first_crash_and_a_restart_are_worth_a_wait_and_a_crash_loop_is_not() {
        let now = Duration::from_secs(100);
        let waits = |phase, failures| State { phase, failures }.comes_back(now);
        let retry = |retry| Phase::Stopping { then: Then::Retry(retry) };
        let backoff = |delay| Phase::Backoff { until: now + Duration::from_millis(delay) };
        assert!(waits(Phase::Stopping { then: Then::Start }, 9) && waits(Phase::Starting, 9));
        assert!(waits(retry(Retry::Soon), 0) && waits(backoff(500), 1) && waits(backoff(1000), 2));
        assert!(!waits(retry(Retry::Soon), 2) && !waits(backoff(2000), 3) && !waits(backoff(20_000), 1));
        assert!(!waits(retry(Retry::AfterSignIn), 0) && !waits(Phase::Stopping { then: Then::Stop }, 0));
        assert!(!waits(Phase::Ready { since: now }, 0) && !waits(Phase::Disabled, 0));
    }

    #[test]
    fn only_a_healthy_time_resets_the_backoff() {
        let tired = State { phase: Phase::Ready { since: Duration::ZERO }, failures: 6 };
        assert_eq!(tired.step(Event::Lost(Retry::Soon), HEALTHY - Duration::from_millis(1), 0.5).0.failures, 6);
        assert_eq!(tired.step(Event::Lost(Retry::Soon), HEALTHY, 0.5).0.failures, 0);
    }

    /// A server that forgets its session again and again is not asked again and again.
    #[test]
    fn a_lost_session_is_replaced_at_once_but_not_over_and_over() {
        let ready = |failures| State { phase: Phase::Ready { since: Duration::ZERO }, failures };
        let lost = |failures| ready(failures).step(Event::Lost(Retry::Now), Duration::from_secs(1), 0.5).0;
        let (state, action) = lost(0).step(Event::Closed, Duration::ZERO, 0.5);
        assert_eq!((state, action), (State { phase: Phase::Renewing, failures: 1 }, Action::Open));
        assert!(lost(0).offers_tools() && state.offers_tools());
        assert!(!state.step(Event::StartFailed(Retry::Now), Duration::ZERO, 0.5).0.offers_tools());
        let (state, action) = lost(1).step(Event::Closed, Duration::ZERO, 0.5);
        assert_eq!((state.due(), action), (Some(Duration::from_secs(1)), Action::Nothing));
        assert!(!lost(1).offers_tools() && !state.offers_tools());
        let first = State { phase: Phase::Stopping { then: Then::Retry(Retry::Now) }, failures: 0 };
        assert_eq!(first.step(Event::Closed, Duration::ZERO, 0.5).0.phase, Phase::Starting);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_reason() {
        let due = |asked| {
            let state = State { phase: Phase::Stopping { then: Then::Retry(Retry::After(asked)) }, failures: 0 };
            state.step(Event::Closed, Duration::ZERO, 0.5).0.due().unwrap()
        };
        assert_eq!(due(Duration::from_secs(20)), Duration::from_secs(21));
        assert_eq!(due(Duration::ZERO), Duration::from_millis(500));
        assert_eq!(due(Duration::from_secs(9999)), LONGEST_WAIT + LONGEST_WAIT.mul_f64(0.05));
    }

    #[test]
    fn waking_up_retries_promptly_and_apart() {
        let now = Duration::from_secs(1000);
        let waiting = State { phase: Phase::Backoff { until: now + LONGEST_DELAY }, failures: 9 };
        let due = |jitter| waiting.step(Event::Woke, now, jitter).0.due().unwrap();
        assert_eq!(due(0.0), now);
        assert_eq!(due(0.5), now + Duration::from_secs(1));
        let soon = State { phase: Phase::Backoff { until: now }, failures: 9 };
        assert_eq!(soon.step(Event::Woke, now, 0.9).0.due(), Some(now), "waking never delays");
    }

    #[test]
    fn a_new_start_or_stop_during_a_close_wins_over_the_old_plan() {
        let closing = State { phase: Phase::Stopping { then: Then::Stop }, failures: 3 };
        let (state, action) = closing.step(Event::Start, Duration::ZERO, 0.0);
        assert_eq!((state.phase, action), (Phase::Stopping { then: Then::Start }, Action::Nothing));
        assert_eq!(
            state.step(Event::Closed, Duration::ZERO, 0.0),
            (State { phase: Phase::Starting, failures: 0 }, Action::Open)
        );
    }
}
