#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir_testkit::fuzz::packets_file(input));
