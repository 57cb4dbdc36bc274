//! The version handshake. `GET /v1/version` is answered by every daemon, whatever else it serves, so that binaries of
//! different releases can say what is wrong; they work together whenever their API ranges overlap.

use crate::api::{API_VERSION, Version};

/// Version of this build's packages.
pub const PACKAGE: &str = env!("CARGO_PKG_VERSION");

/// Lowest API version this build speaks, as a client and as a daemon.
pub const API_MIN: u32 = API_VERSION;

/// A daemon and a client with no API version in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "ptcd {} (pid {}) speaks control API {}, this program is version {PACKAGE} and speaks {}: {}",
    daemon.version, daemon.pid, range(daemon.api_min, daemon.api_max), range(API_MIN, API_VERSION), remedy(daemon)
)]
pub struct Incompatible {
    /// What the daemon said.
    pub daemon: Version,
}

impl Version {
    /// What this build answers as a daemon.
    #[must_use]
    pub fn current() -> Self {
        Self { version: PACKAGE.into(), api_min: API_MIN, api_max: API_VERSION, pid: std::process::id() }
    }

    /// Whether a client of this build can talk to the daemon.
    ///
    /// # Errors
    /// The API ranges do not overlap.
    pub fn check(&self) -> Result<(), Incompatible> {
        if self.api_min <= API_VERSION && self.api_max >= API_MIN {
            Ok(())
        } else {
            Err(Incompatible { daemon: self.clone() })
        }
    }
}

fn range(min: u32, max: u32) -> String {
    if min == max { format!("v{min}") } else { format!("v{min} to v{max}") }
}

fn remedy(daemon: &Version) -> &'static str {
    if daemon.api_max < API_MIN {
        "the daemon is older; stop it, and the next use starts the installed ptcd"
    } else {
        "this program is older; update it and start it again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(api_min: u32, api_max: u32) -> Version {
        Version { version: "9.9.9".into(), api_min, api_max, pid: 7 }
    }

    #[test]
    fn overlapping_ranges_work_together_whatever_the_package_versions() {
        assert_eq!(daemon(API_MIN, API_VERSION).check(), Ok(()));
        assert_eq!(daemon(API_VERSION, API_VERSION + 4).check(), Ok(()));
    }

    #[test]
    fn a_newer_daemon_is_named_with_both_ranges() {
        let error = daemon(API_VERSION + 1, API_VERSION + 2).check().unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "ptcd 9.9.9 (pid 7) speaks control API v2 to v3, this program is version {PACKAGE} and speaks v1: \
                 this program is older; update it and start it again"
            )
        );
    }

    #[test]
    fn an_older_daemon_is_to_be_restarted() {
        let error = daemon(0, API_MIN - 1).check().unwrap_err().to_string();
        assert!(error.contains("the daemon is older"), "{error}");
    }
}
