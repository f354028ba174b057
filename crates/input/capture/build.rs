//! With the feature `dpdk`: compiles the C shim and links DPDK's libraries. Otherwise nothing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    /// The libraries that the shim calls. DPDK loads its drivers itself when it starts.
    const LIBRARIES: [&str; 5] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal"];

    /// Message if DPDK is missing.
    const MISSING: &str = "the feature `dpdk` needs DPDK 22.11 or newer and pkg-config to find it: \
        on Debian 12, apt-get install libdpdk-dev pkg-config. Without the feature, DPDK is not needed";

    pub fn build() {
        println!("cargo:rerun-if-changed=src/live/dpdk");
        let flags = pkg_config(&["--cflags", "libdpdk >= 22.11"]);
        let folders = pkg_config(&["--libs-only-L", "libdpdk"]);
        // Two libraries, so that functions for tests are not linked into programs.
        for (name, file) in [("weir_dpdk", "src/live/dpdk/shim.c"), ("weir_dpdk_inject", "src/live/dpdk/inject.c")] {
            let mut compiler = cc::Build::new();
            compiler.file(file).warnings(true).extra_warnings(true).cargo_metadata(name == "weir_dpdk");
            for flag in flags.split_whitespace() {
                // As system headers, DPDK's headers cause no warnings.
                match flag.strip_prefix("-I") {
                    Some(folder) => compiler.flag("-isystem").flag(folder),
                    None => compiler.flag(flag),
                };
            }
            compiler.compile(name);
        }
        for folder in folders.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")) {
            println!("cargo:rustc-link-search=native={folder}");
        }
        for library in LIBRARIES {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }

    fn pkg_config(arguments: &[&str]) -> String {
        let output = Command::new("pkg-config").args(arguments).output();
        match output {
            Ok(output) if output.status.success() => {
                String::from_utf8(output.stdout).expect("flags of a compiler are text")
            }
            Ok(output) => panic!("{MISSING}\n{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => panic!("{MISSING}\npkg-config: {error}"),
        }
    }
}
