//! Owner of the downstream servers: state machine, transports, process groups, catalog.
