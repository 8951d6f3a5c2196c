#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    tidewire_fuzz::registered_message(bytes);
});
