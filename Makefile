# Weir: all tasks as targets. Start with `make demo` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help demo check test-fast test test-web screenshots ci build web site query bench benches deny fuzz miri cuda docs packages release test-packages wheel test-python captures truth soak test-servers test-kafka image test-image clean

SECONDS_EACH ?= 30

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install missing packages, build weir and print the flows of a small capture.
	@scripts/bootstrap build
	@scripts/demo

check: ## Check an edit in a minute: format, documents, lints, tests inside the changed crates.
	@scripts/check

test-fast: ## Run all tests that need no namespace and no program of others.
	@scripts/test-fast

test: ## Install missing packages, check format and lints, and run all tests.
	@scripts/bootstrap test
	@scripts/test

test-web: ## Test the page of the HTTP interface in a browser (needs Node 20; installs chromium, 360 MB).
	@scripts/bootstrap test-web
	@scripts/test-web

screenshots: ## Take the pictures of docs/screenshots again, by the tests of the page (needs what test-web needs).
	@scripts/bootstrap test-web
	@scripts/screenshots

test-servers: ## Test the sink of ClickHouse and deploy/ with its engine (downloads chdb, 181 MB; needs Python).
	@scripts/bootstrap build
	@scripts/with-rust cargo build --locked --bin weir
	@scripts/test-servers

ci: ## Run continuous integration: deny if cargo-deny is installed, then test.
	@bash .ci/run

build: ## Build the release binary.
	@scripts/bootstrap build
	@scripts/with-rust cargo build --release --locked --bin weir

web: ## Build the page of the HTTP interface, which the next build embeds (needs Node 20 and npm).
	@scripts/web

site: ## Build the documentation as a site and as text, and check its links (the first run fetches mdBook, 5 MB).
	@scripts/bootstrap build
	@scripts/site

query: ## Fetch DuckDB's library for weir query (a package of 24 MB; needs npm).
	@scripts/query

bench: ## Compare weir with other installed meters and with upper bounds; print the ratios.
	@scripts/bootstrap build
	@scripts/with-rust scripts/bench

benches: ## Measure single parts of Weir: TABLE="hash sweep" (default: all; names: TABLE=--list).
	@scripts/bootstrap build
	@scripts/with-rust cargo run --release --locked -q -p weir-benches -- $(TABLE)

deny: ## Check licences, sources and known vulnerabilities of dependencies (needs cargo-deny).
	@scripts/deny

fuzz: ## Run each fuzz target for SECONDS_EACH=30 (needs nightly Rust and cargo-fuzz).
	@scripts/fuzz $(SECONDS_EACH)

packages: ## Build .deb, .rpm and .apk for glibc 2.17 and later (downloads a compiler, 110 MB; needs Node 20, Python).
	@scripts/bootstrap packages
	@scripts/packages

release: ## Build packages, SBOM, checksums, and sign them with KEY=FILE of ssh-keygen; TWICE=1: compare two builds.
	@scripts/bootstrap packages
	@scripts/release

test-packages: packages ## Install, run, upgrade and remove the packages in clean systems (needs root and mmdebstrap).
	@scripts/bootstrap test-packages
	@scripts/test-packages

wheel: ## Build the Python package into target/wheels, for Python 3.10 and later (downloads as packages, and 11 MB).
	@scripts/bootstrap wheel
	@scripts/wheel

test-python: ## Build the Python package with a debug program and test it in a clean environment (downloads 200 MB).
	@scripts/bootstrap test-python
	@scripts/with-rust cargo build --locked --bin weir
	@scripts/test-python

soak: ## Run a probe for HOURS=1 while its surroundings fail, checked every minute (needs root).
	@scripts/bootstrap build
	@scripts/with-rust cargo build --release --locked --bin weir
	@scripts/soak

test-kafka: ## Send records to a broker of Kafka, fetched on the first run (43 MB; needs mvn and Java 17).
	@scripts/test-kafka

image: ## Build the release binary, and an OCI image with it, without a daemon (target/image).
	@scripts/bootstrap image
	@scripts/web || echo "image: WITHOUT THE PAGE" >&2
	@scripts/with-rust cargo build --release --locked --bin weir
	@scripts/image

test-image: ## Build the image twice and run it as user 65532 on a read-only root (needs root, runc, umoci).
	@scripts/bootstrap test-image
	@scripts/web || echo "image: WITHOUT THE PAGE" >&2
	@scripts/with-rust cargo build --release --locked --bin weir
	@scripts/test-image

miri: ## Run tests of unsafe code under Miri (needs nightly Rust with miri).
	@scripts/miri

cuda: ## Compile the CUDA kernels to PTX (downloads the compiler; needs no GPU).
	@scripts/cuda

docs: ## Build the documentation of all crates, with private items.
	@scripts/bootstrap build
	@RUSTDOCFLAGS="-D warnings" scripts/with-rust cargo doc --workspace --locked --no-deps --document-private-items

captures: ## Record the shipped captures again in network namespaces (needs root), then run truth.
	@scripts/record-captures
	@$(MAKE) --no-print-directory truth

truth: ## Write the expected counts of the shipped captures, from tshark, capinfos and scripts/truth.
	@scripts/truth $$(ls testdata/captures/*.pcap* | grep -v json)

clean: ## Remove build outputs.
	@scripts/with-rust cargo clean
