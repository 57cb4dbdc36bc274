//! Confines the child that runs a program; one backend a file.
