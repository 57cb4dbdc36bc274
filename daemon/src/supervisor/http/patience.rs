//! What follows for a message when the server asks for patience (429 or 503 with `Retry-After`); the same for both
//! transports over HTTP.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::verdict::Verdict;

/// A message waits no longer than this for its turn.
const LONGEST: Duration = Duration::from_secs(10);

/// How often a message is sent.
const TRIES: usize = 3;

/// The patience that a server has asked for; shared by all messages to it.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Patience {
    /// Nothing is sent before this moment.
    until: Mutex<Option<Instant>>,
}

/// How a message takes the wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor) enum Manner {
    /// It waits for its turn, and is sent again when it was refused.
    Patient,
    /// It is not sent before its time, and not again: whoever sent it has plans of their own.
    Once,
}

/// One message's way through a server's wishes.
#[derive(Debug)]
pub(in crate::supervisor) struct Tries<'a> {
    patience: &'a Patience,
    manner: Manner,
    sent: usize,
}

/// The server wants to be left alone for longer than the message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server asks to be left alone for now")]
pub(in crate::supervisor) struct LeftAlone;

impl Patience {
    /// The way of a new message.
    pub(in crate::supervisor) const fn tries(&self, manner: Manner) -> Tries<'_> {
        Tries { patience: self, manner, sent: 0 }
    }

    /// Takes in that the server wants to be left alone for so long.
    pub(in crate::supervisor) fn ask(&self, for_time: Duration) {
        let until = Instant::now() + for_time;
        let mut known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(until, |known| known.max(until)));
    }

    /// What is left of it.
    pub(in crate::supervisor) fn left(&self) -> Duration {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default()
    }
}

impl Tries<'_> {
    /// Waits until the message may be sent.
    ///
    /// # Errors
    /// That would take too long.
    pub(in crate::supervisor) async fn turn(&mut self) -> Result<(), LeftAlone> {
        let left = self.patience.left();
        let longest = if self.manner == Manner::Patient { LONGEST } else { Duration::ZERO };
        if left > longest {
            return Err(LeftAlone);
        }
        tokio::time::sleep(left).await;
        self.sent += 1;
        Ok(())
    }

    /// Takes in how the message was refused; whether it is sent again.
    pub(in crate::supervisor) fn again(&self, verdict: &Verdict) -> bool {
        let Verdict::Busy { after: Some(after), .. } = verdict else { return false };
        self.patience.ask(*after);
        self.manner == Manner::Patient && *after <= LONGEST && self.sent < TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(seconds: u64) -> Verdict {
        Verdict::Busy { after: Some(Duration::from_secs(seconds)), reason: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_patient_message_waits_and_is_sent_again_a_few_times() {
        let patience = Patience::default();
        let began = Instant::now();
        let mut tries = patience.tries(Manner::Patient);
        for number in 1..=TRIES {
            assert_eq!(tries.turn().await, Ok(()));
            assert_eq!(tries.again(&busy(7)), number < TRIES);
        }
        assert_eq!(began.elapsed().as_secs(), 14);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_long_and_a_wish_holds_for_all() {
        let patience = Patience::default();
        assert!(!patience.tries(Manner::Patient).again(&busy(100)));
        assert!(!patience.tries(Manner::Once).again(&busy(1)), "a shorter wish does not end a longer one");
        assert_eq!(patience.tries(Manner::Patient).turn().await, Err(LeftAlone));
        tokio::time::advance(Duration::from_secs(95)).await;
        assert_eq!(patience.tries(Manner::Once).turn().await, Err(LeftAlone));
        assert_eq!(patience.tries(Manner::Patient).turn().await, Ok(()));
        assert_eq!(patience.tries(Manner::Once).turn().await, Ok(()));
        assert!(!patience.tries(Manner::Once).again(&busy(1)));
        assert!(!patience.tries(Manner::Patient).again(&Verdict::Gone(String::new())));
    }
}
