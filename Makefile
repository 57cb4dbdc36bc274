# The commands of this project. `make help` lists them.
#
# Needed: Rust 1.95+, Python 3.11+; for `test` also node 20+ with npm, and git. The tests install the public servers and
# clients they talk to by themselves, pinned, under tests/fixtures/.installed.

CARGO  ?= cargo
PYTHON ?= python3
TARGET  = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo build release test test-rust test-python test-setup test-macos check-macos check fmt bench bench-context chaos fuzz

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: build ## build, then show the main job with a private daemon and a demo server
	@$(TARGET)/debug/ptcctl demo

build: ## build the three binaries for development
	$(CARGO) build --workspace --bins

release: ## build the three binaries for use
	$(CARGO) build --release --bins -p ptcd -p ptc-shim

test: test-setup test-rust ## run all tests, installing what they need

test-setup: ## install the pinned public servers and clients for the tests
	tests/setup

test-rust:
	$(CARGO) test --workspace

test-python: ## run the tests of the Python runtime alone (`test` runs them too)
	cd daemon/src/python && $(PYTHON) -B -m unittest discover -t . -s tests

test-macos: ## on a Mac: run the sandbox's tests that need one
	$(CARGO) test -p ptcd --test sandbox
	$(CARGO) test -p ptc-tests --test escapes -- --ignored

check-macos: ## on Debian: check and lint for macOS (downloads a toolchain once, 150 MB)
	ci/mac-toolchain.sh $(TARGET)/mac-toolchain
	CARGO_TARGET_DIR=$(TARGET)/mac $(TARGET)/mac-toolchain/bin/cargo clippy --workspace --all-targets \
	  --target aarch64-apple-darwin -- -D warnings

check: ## formatting, lints, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items

fmt: ## format the sources
	$(CARGO) fmt --all

bench: release ## measure the release binaries on this machine
	$(PYTHON) tests/bench/bench.py --bin-dir $(TARGET)/release --sandbox none
	$(PYTHON) tests/bench/bench.py --bin-dir $(TARGET)/release --sandbox auto

chaos: test-setup ## minutes of random kills, restarts and config edits (PTC_CHAOS_SECONDS, PTC_CHAOS_SEED)
	PTC_CHAOS_SECONDS=$(or $(PTC_CHAOS_SECONDS),180) $(CARGO) test -p ptc-tests --test e2e chaos:: -- --nocapture

bench-context: test-setup build ## measure what enters a conversation with and without ptc
	$(PYTHON) tests/bench/context.py --bin-dir $(TARGET)/debug

fuzz: ## feed the decoder of a child's channel with odd bytes for a while (FUZZ_SECONDS); needs cargo-fuzz
	@$(CARGO) fuzz --version || { echo 'first: cargo install cargo-fuzz --version 0.13.2 --locked' >&2; exit 1; }
	cd tests/fuzz && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run channel -- -max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=4096
