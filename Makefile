# Every target sets up what it needs: a virtual environment in .venv, the release build of the
# native module in it, and for tests the packages that they compare with. Nothing up to date is
# rebuilt. `make help` lists the targets.

PYTHON ?= python3
CARGO ?= cargo
# The corpus of make bench; by default the source of Python's standard library.
CORPUS ?=
# The extent of make fuzz: random cases per Rust property, examples per Python property, seconds
# per cargo-fuzz target.
FUZZ_CASES ?= 200000
FUZZ_EXAMPLES ?= 5000
FUZZ_SECONDS ?= 60
# The extent of make faults: the most calls disturbed, the same for commands that need torch, signals
# sent, damaged files of each kind.
FAULTS_CALLS ?= 400
FAULTS_LEARNING_CALLS ?= 25
FAULTS_SIGNALS ?= 1000
FAULTS_MUTATIONS ?= 200
# The oldest glibc that wheels must run with (make wheel).
GLIBC ?= manylinux_2_17
# Rounds of make soak; each is a dozen kills.
SOAK_ROUNDS ?= 20

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(BIN)/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check --no-input

HOST = $(shell rustc -vV | sed -n "s/^host: //p")
RUST_FILES := $(shell find src kernels -type f) $(wildcard build.rs Cargo.lock) Cargo.toml
FUZZ_TARGETS := $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))

# PyO3 is recompiled unless every build uses the same interpreter.
export PYO3_PYTHON := $(CURDIR)/$(PY)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast check-format lint types test-rust test-python format bench fuzz faults sanitize soak docs wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.native $(VENV)/.lm ## a tokenizer and a small model from Python's own source
	@$(BIN)/bytemill demo

test: check-format lint types test-rust test-python ## all checks and tests: run before each commit

test-fast: $(VENV)/.native $(VENV)/.dev ## formatting, types and the quick tests, in about two minutes on two cores
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/pytest --quiet --numprocesses auto --maxprocesses 4 --dist loadscope -m 'not slow and not ray'

check-format: $(VENV)/.dev ## formatting, without changing files
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path benches/Cargo.toml
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format --check --quiet .

lint: $(VENV)/.dev ## ruff and clippy, warnings as errors
	$(BIN)/ruff check --quiet .
	$(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	$(CARGO) clippy --quiet --workspace --all-targets --features python -- --deny warnings

types: $(VENV)/.native $(VENV)/.dev ## mypy on the package, and the native module against its stub
	$(BIN)/mypy --no-error-summary
	MYPYPATH=python $(BIN)/stubtest bytemill._native --allowlist tests/stubtest-allowlist.txt

test-rust: ## the Rust tests, which need no Python
	$(CARGO) test --quiet --workspace

test-python: $(VENV)/.native $(VENV)/.dev ## the Python tests, doctests and the README's examples
	$(BIN)/pytest --quiet --numprocesses auto --maxprocesses 4 --dist loadscope -m 'not slow and not ray'
	@# Browsers, several ranks, commands that are killed: each needs more than one core at times.
	$(BIN)/pytest --quiet --numprocesses 2 --dist loadfile -m 'slow and not ray'
	@# In a separate process, without capturing what Ray prints.
	$(BIN)/pytest --quiet -m ray --capture=sys tests

format: $(VENV)/.dev ## format all code; write the map of the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path benches/Cargo.toml
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .
	$(PYTHON) tests/module_graph.py --svg >docs/modules.svg
	$(PYTHON) tests/code_map.py >docs/map.md

bench: $(VENV)/.native $(VENV)/.bench ## our own benchmarks, then a comparison with other libraries (CORPUS=file)
	$(CARGO) bench --quiet --manifest-path benches/Cargo.toml --target-dir target/benches
	$(PY) benchmarks/compare.py $(CORPUS)

fuzz: $(VENV)/.native $(VENV)/.dev ## many random cases; cargo-fuzz too where it is installed
	PROPTEST_CASES=$(FUZZ_CASES) $(CARGO) test --release --quiet --workspace
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest --quiet -m hypothesis --timeout 0
	@if $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then set -e; \
	    $(PY) fuzz/seeds.py; \
	    mkdir -p target/fuzz-logs; \
	    for target in $(FUZZ_TARGETS); do \
	        echo "$$target: $(FUZZ_SECONDS) s, see target/fuzz-logs/$$target.log"; \
	        $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=20 \
	            -print_final_stats=1 >target/fuzz-logs/$$target.log 2>&1; \
	    done; \
	else \
	    echo "cargo-fuzz needs a nightly toolchain and 'cargo install cargo-fuzz': skipped"; \
	fi

faults: $(VENV)/.native $(VENV)/.dev ## full disks, kills and damaged files; results to docs/reliability.md
	cd tests && $(CURDIR)/$(PY) -m faults all --save --calls $(FAULTS_CALLS) \
	    --learning-calls $(FAULTS_LEARNING_CALLS) --signals $(FAULTS_SIGNALS) \
	    --mutations $(FAULTS_MUTATIONS)

sanitize: ## the Rust tests with AddressSanitizer; those of encoder and counts with valgrind
	RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(CARGO) +nightly test --quiet --workspace \
	    --lib --target $(HOST) --target-dir target/sanitize
	@# Valgrind is slow, and hides AVX-512 from the code it runs.
	PROPTEST_CASES=4 CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER="valgrind --quiet \
	    --error-exitcode=1" $(CARGO) test --quiet --lib -- tokenizer::encode learn::counts base::

soak: $(VENV)/.native ## kill the writing of tokens at many random moments (SOAK_ROUNDS)
	$(PY) tests/soak_tokens.py $(SOAK_ROUNDS)

docs: $(VENV)/.native $(VENV)/.dev ## the documentation site in target/site; warnings are errors
	$(PY) docs/site.py
	$(BIN)/zensical build --strict --clean
	@echo "open target/site/index.html"

wheel: $(VENV)/.wheel ## a wheel, built from the source distribution beside it in dist/, and tested
	rm -rf dist target/wheel-check
	@# Zig links against an old glibc, whatever this machine has.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --strip --locked --sdist --out dist \
	    $(if $(filter Linux,$(shell uname -s)),--zig --compatibility $(GLIBC))
	$(if $(filter Linux,$(shell uname -s)),$(BIN)/auditwheel show dist/*.whl)
	$(PYTHON) -m venv target/wheel-check
	target/wheel-check/$(notdir $(BIN))/python -m pip install --quiet --only-binary :all: dist/*.whl
	target/wheel-check/$(notdir $(BIN))/python tests/smoke_wheel.py

clean: ## remove everything that the targets made
	rm -rf $(VENV) target fuzz/target dist demo .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f python/bytemill/_native*.so python/bytemill/_native*.pyd
	find python tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# --- set-up: each stamp is newer than what it was made from -----------------------------------

$(VENV)/.maturin:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed" >&2; \
	    echo "hint: install Python 3.10 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "error: $$($(PYTHON) --version) is too old: bytemill needs Python 3.10" >&2; \
	    echo "hint: name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "error: cargo is not installed" >&2; \
	    echo "hint: install Rust as https://www.rust-lang.org/tools/install says" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
	    echo "hint: on Debian and Ubuntu, venv is a package: python3-venv" >&2; exit 1; }
	@$(PIP) install --upgrade 'pip>=25.1' 'maturin>=1.9.4,<2'
	@touch $@

# An editable install: the module is put beside the Python files, so that only changed Rust files
# need this again. (maturin develop would also install everything that the tests need.)
$(VENV)/.native: $(VENV)/.maturin pyproject.toml $(RUST_FILES)
	@echo "building the native module: some minutes the first time"
	@$(PIP) install --no-build-isolation --editable .
	@touch $@

# Not all of these have wheels for every Python; those that are missing are skipped.
$(VENV)/.bench: $(VENV)/.maturin pyproject.toml
	@echo "installing the libraries of the comparison"
	@$(PIP) install --group bench || $(PIP) install --group rivals
	@touch $@

$(VENV)/.lm: $(VENV)/.maturin pyproject.toml
	@echo "installing torch: some gigabytes the first time"
	@$(PIP) install --group lm --group serve
	@touch $@

$(VENV)/.wheel: $(VENV)/.maturin pyproject.toml
	@echo "installing what builds and checks wheels"
	@$(PIP) install --group wheel
	@touch $@

$(VENV)/.dev: $(VENV)/.maturin pyproject.toml
	@echo "installing what the tests need"
	@$(PIP) install --group dev
	@touch $@
