# On a fresh clone, `make demo` and `make test` each do everything: environment, dependencies, run.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  := $(shell grep '^torch==' constraints.txt)
PIP    := $(BIN)/python -m pip install --quiet -c constraints.txt
JOBS   ?= 2
PART   ?= 1/16
SECONDS ?= 600

# The oldest Triton that Genesis supports, which the default environment has, and the newest.
TRITON        := 3.6.0
TRITON_NEWEST := 3.9.0

.PHONY: demo test test-fast test-gpu test-sweep test-newest-triton test-wheel test-all mutate lint pages install clean

demo: install
	$(BIN)/genesis demo $(ARGS)
	@echo "To have the genesis command on the path: source $(BIN)/activate"

# A test that fails beside others runs again, alone. One that passes then asks for a quieter machine or for fewer
# neighbours than it may: the output names it, and it belongs into docs/open_ends.md. Only after a whole
# run (pytest's status 1): one that was interrupted knows of no failures in what it did not reach.
AGAIN = -m pytest -n 0 --last-failed --last-failed-no-failures none

test: install
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS) || { [ $$? = 1 ] && $(BIN)/python $(AGAIN) $(ARGS); }

# What to run between two edits: not the kernels in the interpreter, not torch's samples, not each op and module beside
# torch's, not commands and runs as processes of their own, not injected faults, not random programs, not every size and
# every pair of dtypes, not what compiling costs. Under two minutes.
LONG := array_api checkpointing cli codegen/cuda distributed distributions engine/symbolic engine/test_compile_cost.py \
	engine/test_limits.py engine/test_odd_loops.py faults func/test_batch_rules.py gpu ir/test_types_of_traces.py \
	models mutants nn opinfo ops optim/test_interrupted_steps.py optim/test_lbfgs.py optim/test_loading.py \
	passes/fusion/test_fuse_random.py passes/remat profiler semantics/test_dtype_promotion.py \
	semantics/test_index_shapes.py semantics/test_threads.py test_examples.py test_llm_steps.py test_model_steps.py \
	test_pages.py tracing/test_random_programs.py tracing/test_size_programs.py tracing/test_slots.py \
	tracing/test_steps_on_gpu.py tracing/test_symbolic_calls.py tracing/test_symbolic_steps.py utils/data

test-fast: install
	$(BIN)/python -m pytest -n $(JOBS) $(LONG:%=--ignore=tests/%) $(ARGS)

# One of n equal parts of the long tests: every op with every dtype and sample, thousands of random programs.
test-sweep: install
	$(BIN)/python -m pytest -n $(JOBS) -m "slow or sweep" --part $(PART) $(ARGS) \
		|| { [ $$? = 1 ] && $(BIN)/python $(AGAIN) -m "slow or sweep" --part $(PART) $(ARGS); }

# What wants a GPU, with an account however it ends. Without a GPU: ARGS="-- --pretend-gpu 60 tests/gpu".
test-gpu: install
	$(BIN)/python -m tests.on_gpu --jobs $(JOBS) --seconds $(SECONDS) $(ARGS)

# Kernels with the newest Triton, in an environment of its own.
test-newest-triton:
	$(MAKE) VENV=$(VENV)-newest TRITON=$(TRITON_NEWEST) install
	$(VENV)-newest/bin/python -m pytest -n $(JOBS) tests/codegen/cuda tests/golden $(ARGS) \
		|| { [ $$? = 1 ] && $(VENV)-newest/bin/python $(AGAIN) tests/codegen/cuda tests/golden $(ARGS); }

# The wheel, installed into an empty environment, runs the quick start.
test-wheel: install
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py $(ARGS)

test-all: install
	$(BIN)/python -m pytest -n $(JOBS) -m "" $(ARGS)

# Do the tests notice? Plants one of n equal parts of tests/mutants/faults in copies of the tree, and runs their tests.
mutate: install
	$(BIN)/python -m tests.mutants.run --jobs $(JOBS) --part $(PART) $(ARGS)

lint: install
	$(BIN)/ruff check genesis tests examples
	$(BIN)/mypy

# Every page in docs/ that is made of tables in the code, of what commands print, or of benchmarks/results: after a change
# to one of these. Goldens are apart (CONTRIBUTING.md), as each of their changes is to be looked at.
pages: install
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q -n 0 -k "current or accuracy" \
		tests/cli/test_ops.py tests/cli/test_walkthrough.py tests/test_pages.py
	$(BIN)/python benchmarks/performance.py
	git status --short docs

install: $(VENV)/.installed

# torch first: its own requirement decides which Triton is right. Only a build that brings none (the CPU
# one) gets the version that the generated kernels are tested with.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Genesis needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("triton"))' || $(PIP) triton==$(TRITON)
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf build dist runs *.egg-info .pytest_cache .mypy_cache .ruff_cache
