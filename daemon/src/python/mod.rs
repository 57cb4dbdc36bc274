//! The child's runtime, real Python files embedded in the daemon.
