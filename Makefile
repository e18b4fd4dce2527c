# make demo    set up, then compile, run and check an example, showing each stage
# make test    set up, then all checks: lint, types, lit, pytest
# make bench   the table of the README, measured on this machine
# make fuzz    tests of properties, slow ones too, with examples that no run has drawn before; once, or MINUTES=60
# Other targets: setup, check (the same as test), lint, format, types, lit, pytest, test-slow, test-frontends,
# fuzz-frontends, clean.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := compiler dialects transforms test bench examples
SOURCES := $(wildcard $(SOURCES))
IMPORT := build/import/attn_opt

# A minimal Debian has neither venv's bootstrap nor pip; with one of the two it works.
MAKE_VENV := $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(BIN)/python install pip; }
NO_VENV := attn-opt needs a virtual environment, which $(PYTHON) cannot create here; \
	on Debian or Ubuntu: sudo apt install python3-venv

.PHONY: setup demo bench test check lint format types lit pytest test-slow fuzz setup-frontends test-frontends fuzz-frontends clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "attn-opt needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python -a -x $(BIN)/pip || $(MAKE_VENV) || { rm -rf $(VENV); echo "$(NO_VENV)" >&2; exit 1; }
	@echo "setting up $(VENV): the pinned dependencies (about 300 MB, once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# as pip does with what it copies: where Python may not write (PYTHONDONTWRITEBYTECODE) each process would do it anew
	$(BIN)/python -m compileall -q compiler dialects transforms
	@touch $@

demo: setup
	$(BIN)/attn-run examples/attention.mlir --print-ir graph --print-ir fused --bench

bench: setup
	$(BIN)/python bench/table.py

test: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types lit
	@$(MAKE) --no-print-directory pytest
check: test

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# The import paths are the folders (see pyproject.toml), which mypy cannot know: it sees them through links.
$(IMPORT)/%:
	@mkdir -p $(IMPORT)
	@ln -sfn ../../../$* $@

types: setup $(IMPORT)/compiler $(IMPORT)/dialects $(IMPORT)/transforms
	$(BIN)/mypy --package attn_opt

lit: setup
	$(BIN)/lit --verbose --order=lexical test

# A process per processor, each with tests that stand next to each other: they share kernels.
XDIST := --numprocesses auto --dist worksteal

MARKED := not slow

pytest: setup
	$(BIN)/pytest --quiet -m "$(MARKED)" $(XDIST)

test-slow: setup
	$(BIN)/pytest --quiet -m slow $(XDIST)

# Every failure prints what reproduces it, and ends it. Runs start as long as MINUTES have not passed.
MINUTES := 0
FUZZ = end=$$(($$(date +%s) + 60 * $(MINUTES))); while \
		HYPOTHESIS_PROFILE=fuzz $(1)/pytest --quiet -m "slow or not slow" $(XDIST) $(shell grep -rl --include='test_*.py' -E '^from (hypothesis|random_checks)' $(2)); \
	do test $$(date +%s) -lt $$end || exit 0; done; exit 1

fuzz: setup
	@$(call FUZZ,$(BIN),test/python/*.py test/numeric)

# The frontends' tests need their frameworks, which are large: an environment of its own.
FRAMEWORKS := torch==2.13.0 onnx==1.23.2 jax==0.10.2

setup-frontends: $(VENV)-frontends/.installed

$(VENV)-frontends/.installed: requirements.lock pyproject.toml Makefile
	@$(PYTHON) -m venv --clear $(VENV)-frontends
	@echo "setting up $(VENV)-frontends: $(FRAMEWORKS)"
	$(VENV)-frontends/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock $(FRAMEWORKS)
	$(VENV)-frontends/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# as pip does with what it copies: where Python may not write (PYTHONDONTWRITEBYTECODE) each process would do it anew
	$(BIN)/python -m compileall -q compiler dialects transforms
	@touch $@

test-frontends: setup-frontends
	$(VENV)-frontends/bin/pytest --quiet test/python/frontends $(XDIST)

fuzz-frontends: setup-frontends
	@$(call FUZZ,$(VENV)-frontends/bin,test/python/frontends)

clean:
	rm -rf $(VENV) $(VENV)-frontends build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
