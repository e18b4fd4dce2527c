# make demo    set up, then compile, run and check an example, showing each stage
# make test    set up, then all checks: lint, types, lit, pytest
# Other targets: setup, check (the same as test), lint, format, types, lit, pytest, test-slow, clean.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := compiler dialects transforms test bench
SOURCES := $(wildcard $(SOURCES))
IMPORT := build/import/attn_opt

.PHONY: setup demo test check lint format types lit pytest test-slow clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "attn-opt needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); echo "$(PYTHON) cannot create virtual environments; on Debian, install them with: sudo apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV): the pinned dependencies (about 300 MB, once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	$(BIN)/attn-run examples/attention.mlir --print-ir graph --print-ir fused --bench

test: lint types lit pytest
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

pytest: setup
	$(BIN)/pytest --quiet

test-slow: setup
	$(BIN)/pytest --quiet -m slow

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
