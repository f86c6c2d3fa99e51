# On a fresh clone, `make demo` and `make test` each do everything: environment, dependencies, run.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  := $(shell grep '^torch==' constraints.txt)
PIP    := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: demo test test-all lint install clean

demo: install
	$(BIN)/genesis demo $(ARGS)

test: install
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-all: install
	$(BIN)/python -m pytest -n 2 -m "" $(ARGS)

lint: install
	$(BIN)/ruff check genesis tests examples
	$(BIN)/mypy

install: $(VENV)/.installed

# torch first: its own requirement decides which Triton is right. Only a build that brings none (the CPU
# one) gets the version that the generated kernels are tested with.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Genesis needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("triton"))' || $(PIP) triton==3.6.0
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf build dist runs *.egg-info .pytest_cache .mypy_cache .ruff_cache
