//! Whatever a child writes on its channel is decoded or refused, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _either = ptcd::runner::decode(bytes);
});
