# Each target sets up .venv by itself. PYTHON picks the interpreter (3.11 to 3.13); PIP_FLAGS reaches pip, e.g.
# PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" for a small torch without CUDA.
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
DEMO_DIR ?= demo

.PHONY: install demo test test-slow lint bench report clean-demo

install: .venv/installed

.venv/installed: setup.py constraints.txt
	@$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13), sys.version' || \
		{ echo "Python 3.11 to 3.13 is needed; say which with PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[train,dev]'
	touch $@

demo: install
	PATH="$(CURDIR)/$(BIN):$$PATH" DEMO_DIR="$(DEMO_DIR)" bash examples/demo.sh

test: install
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-slow: install
	$(BIN)/python -m pytest -m "slow and not gpu"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: install
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/picture.py benchmarks/results/step_cpu.json docs/images/speed.png

report: install
	$(BIN)/python -m training.report $(RUNS) --output_dir $(or $(OUT),report)
