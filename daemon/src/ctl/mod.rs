//! ptcctl's verbs and their rendering; uses only config and protocol.
