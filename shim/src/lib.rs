//! The shim as a library.
