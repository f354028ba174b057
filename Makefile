# Weir: everything by name. Two commands are enough: `make demo`, `make test`.
.DEFAULT_GOAL := help
.PHONY: help demo test ci build bench deny fuzz miri cuda docs captures truth clean

SECONDS_EACH ?= 30

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install what is missing, build weir, show the flows of a small capture.
	@scripts/bootstrap build
	@scripts/demo

test: ## Install what is missing, then check format and lints and run every test.
	@scripts/bootstrap test
	@scripts/test

ci: ## What continuous integration runs: test, then deny where cargo-deny is installed.
	@bash .ci/run

build: ## Build the release binary.
	@scripts/bootstrap build
	@scripts/with-rust cargo build --release --locked --bin weir

bench: ## Measure weir beside other meters that are installed and beside its ceilings, as ratios.
	@scripts/bootstrap build
	@scripts/with-rust scripts/bench

deny: ## Check licences, sources and known vulnerabilities of all dependencies (needs cargo-deny).
	@scripts/deny

fuzz: ## Run every fuzz target for SECONDS_EACH=30 (needs nightly and cargo-fuzz).
	@scripts/fuzz $(SECONDS_EACH)

miri: ## Run the modules of unsafe code, and the meter on top of them, under Miri (needs nightly and miri).
	@scripts/miri

cuda: ## Compile the kernels for cards anew (fetches the compiler, needs no card).
	@scripts/cuda

docs: ## Build the documentation of all crates, private items too.
	@scripts/bootstrap build
	@RUSTDOCFLAGS="-D warnings" scripts/with-rust cargo doc --workspace --locked --no-deps --document-private-items

captures: ## Record the shipped captures anew in network namespaces (needs root), with their truth.
	@scripts/record-captures
	@$(MAKE) --no-print-directory truth

truth: ## Write what other tools say of the shipped captures beside them.
	@scripts/truth $$(ls testdata/captures/*.pcap* | grep -v json)

clean: ## Remove what was built.
	@scripts/with-rust cargo clean
