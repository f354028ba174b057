//! With the feature `ndpi`: compiles the C shim and links nDPI. Otherwise nothing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "ndpi")]
    ndpi::build();
}

#[cfg(feature = "ndpi")]
mod ndpi {
    use std::process::Command;

    /// Message if nDPI is missing, or of another version. Its interface differs between versions.
    const MISSING: &str = "the feature `ndpi` needs nDPI 4.2 and pkg-config to find it: \
        on Debian 12, apt-get install libndpi-dev pkg-config. Without the feature, nDPI is not needed";

    pub fn build() {
        println!("cargo:rerun-if-changed=src/shim.c");
        let flags = pkg_config(&["--cflags", "libndpi >= 4.2 libndpi < 4.3"]);
        let mut compiler = cc::Build::new();
        compiler.file("src/shim.c").warnings(true).extra_warnings(true);
        for flag in flags.split_whitespace() {
            // As system headers, nDPI's headers cause no warnings.
            match flag.strip_prefix("-I") {
                Some(folder) => compiler.flag("-isystem").flag(folder),
                None => compiler.flag(flag),
            };
        }
        compiler.compile("weir_ndpi");
        for folder in pkg_config(&["--libs-only-L", "libndpi"]).split_whitespace() {
            println!("cargo:rustc-link-search=native={}", folder.trim_start_matches("-L"));
        }
        println!("cargo:rustc-link-lib=dylib=ndpi");
    }

    fn pkg_config(arguments: &[&str]) -> String {
        match Command::new("pkg-config").args(arguments).output() {
            Ok(output) if output.status.success() => {
                String::from_utf8(output.stdout).expect("flags of a compiler are text")
            }
            Ok(output) => panic!("{MISSING}\n{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => panic!("{MISSING}\npkg-config: {error}"),
        }
    }
}
