# Each target sets up .venv by itself. PYTHON chooses the interpreter (3.11 to 3.13). PIP_FLAGS is passed to pip, for
# example PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" for a small torch without CUDA.
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
DEMO_DIR ?= demo

.PHONY: help install demo test test-slow test-kernels lint bench report release

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
	@echo "PYTHON chooses the interpreter, PIP_FLAGS is passed to pip; CONTRIBUTING.md says more."

install: .venv/installed ## make .venv with the versions of constraints.txt

.venv/installed: setup.py constraints.txt
	@$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13), sys.version' || \
		{ echo "Python 3.11 to 3.13 is needed; choose one with PYTHON=python3.12, for example"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[train,dev]'
	touch $@

demo: install ## learn a vocabulary, pre-train and fine-tune; takes some minutes and needs no data
	PATH="$(CURDIR)/$(BIN):$$PATH" DEMO_DIR="$(DEMO_DIR)" bash examples/demo.sh

test: install ## run the tests that take seconds each
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-slow: install ## run the tests that take minutes each
	$(BIN)/python -m pytest -m "slow and not gpu"

test-kernels: install ## run the quick tests on the kernels of a processor without AVX, in one thread
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu"

lint: install ## check rules and format (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install ## time training steps, also of transformers' BERT; rewrites benchmarks/results/
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/picture.py benchmarks/results/step_cpu.json docs/images/speed.png

report: install ## compare finished runs: make report RUNS="runs/a runs/b" OUT=report
	$(BIN)/python -m training report $(RUNS) --output_dir $(or $(OUT),report)

release: install ## build sdist and wheel of the committed files into dist/ and try them in a clean environment
	PYTHON="$(CURDIR)/$(BIN)/python" PIP_FLAGS="$(PIP_FLAGS)" .ci/release
