//! Programs: queue, pool of warm children, one program's life, output limits. The only module that knows the channel.
