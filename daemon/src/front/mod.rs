//! The control API: socket, peer uid, routes. The only module that knows HTTP.
