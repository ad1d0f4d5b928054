# Each target sets up .venv by itself. PYTHON chooses the interpreter (3.11 to 3.13). PIP_FLAGS is passed to pip.
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch, and nothing else, from that index, which has a small one
# without CUDA. Two indices at once (--extra-index-url) would let either of them replace any package.
# LOCKED=1 installs only files whose hashes .ci/locked.txt has, except torch, which comes from its own index.
PYTHON ?= python3
PIP_FLAGS ?=
TORCH_INDEX ?=
LOCKED ?=
TORCH_FLAGS := $(if $(TORCH_INDEX)$(LOCKED),--no-deps) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
BIN := .venv/bin
# uv installs the same versions in less time; UV= takes pip although uv is there.
UV ?= $(shell command -v uv)
INSTALL_WITH = $(if $(UV),$(UV) pip install --compile-bytecode --python $(1)/bin/python,$(1)/bin/pip install --disable-pip-version-check)
PIP_INSTALL = $(call INSTALL_WITH,.venv) --quiet $(PIP_FLAGS)
# The tests run in two processes; JOBS=8 suits a machine with more cores, JOBS=0 a debugger.
JOBS ?= 2
PYTEST_FLAGS := -n $(JOBS) --dist worksteal
ECOSYSTEM := .venv-ecosystem
OLDEST := .venv-oldest
SITE := .venv-site
DEMO_DIR ?= demo

.PHONY: help install demo test test-slow lab-test test-kernels test-ecosystem test-oldest faults lint bench report site release

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo "PYTHON chooses the interpreter, PIP_FLAGS is passed to pip, TORCH_INDEX is torch's index; CONTRIBUTING.md says more."

install: .venv/installed ## make .venv with the versions of constraints.txt

.venv/installed: pyproject.toml setup.py constraints.txt .ci/locked.txt
	@$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13), sys.version' || \
		{ echo "Python 3.11 to 3.13 is needed; choose one with PYTHON=python3.12, for example"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) $(TORCH_FLAGS) -c constraints.txt torch
	$(if $(LOCKED),$(PIP_INSTALL) --require-hashes -r .ci/locked.txt)
	$(if $(LOCKED),$(PIP_INSTALL) --no-deps --no-build-isolation -e .,$(PIP_INSTALL) -c constraints.txt -e '.[dev]')
	touch $@

demo: install ## learn a vocabulary, pre-train and fine-tune; takes some minutes and needs no data
	PATH="$(CURDIR)/$(BIN):$$PATH" DEMO_DIR="$(DEMO_DIR)" bash examples/demo.sh

test: install ## run the tests that take seconds each; the programs that they start have one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not slow and not gpu"

lab-test: install ## run the tests of the laboratory: benchmarks, the paper as a program, the fault campaign
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not gpu" lab/tests

test-slow: install ## run the tests that take minutes each, except those of test-ecosystem
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "slow and not gpu and not tried"

# Only the rooms whose numbers come from those kernels; what files, flags and messages say is the same on every processor.
KERNEL_ROOMS := tests/modeling_bert_repro tests/engine tests/pretraining tests/tasks

test-kernels: install ## run the quick tests of numbers on the kernels of a processor without AVX, in one thread
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not slow and not gpu" $(KERNEL_ROOMS)

test-ecosystem: $(ECOSYSTEM)/installed ## run the tests with other people's packages; none of them may be skipped
	BERT_REPRO_ECOSYSTEM=required $(ECOSYSTEM)/bin/python -m pytest -m "tried and not gpu"
	BERT_REPRO_ECOSYSTEM=required $(ECOSYSTEM)/bin/python -m pytest lab/tests/test_library_examples.py

# This environment sees the packages of .venv, which stay as they are, and adds those of the extra `ecosystem`.
$(ECOSYSTEM)/installed: .venv/installed
	$(BIN)/python -m venv $(ECOSYSTEM)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
		"$$($(ECOSYSTEM)/bin/python -c 'import site; print(site.getsitepackages()[0])')/base.pth"
	$(ECOSYSTEM)/bin/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt \
		-e '.[dev,ecosystem]'
	touch $@

test-oldest: $(OLDEST)/installed ## run the quick tests with the oldest versions that pyproject.toml allows
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest $(PYTEST_FLAGS) -m "not slow and not gpu"

TEST_TOOLS := build hypothesis import-linter playwright pytest pytest-xdist setuptools tensorboard
OLDEST_INSTALL = $(call INSTALL_WITH,$(OLDEST)) --quiet $(PIP_FLAGS)
$(OLDEST)/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST_INSTALL) $(TORCH_FLAGS) "torch==$(shell sed -n 's/.*"torch>=\([0-9.]*\),.*/\1/p' pyproject.toml).*"
	$(OLDEST_INSTALL) -r constraints-oldest.txt
	grep -E '^($(subst $() ,|,$(TEST_TOOLS)))==' constraints.txt > $(OLDEST)/tools.txt
	$(OLDEST_INSTALL) -r $(OLDEST)/tools.txt
	$(OLDEST_INSTALL) --no-deps -e .
	touch $@

faults: install ## the whole fault campaign; takes three hours and rewrites lab/records/faults.json
	$(BIN)/python lab/faults.py

lint: install ## check rules and format (ruff), types (mypy) and the directions of imports (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install ## time training steps, also of transformers' BERT; rewrites lab/records/
	$(BIN)/python lab/benchmarks/step.py --dtype fp32
	$(BIN)/python lab/benchmarks/picture.py lab/records/step_cpu.json docs/images/speed.png

report: install ## compare finished runs: make report RUNS="runs/a runs/b" OUT=report
	$(BIN)/python -m bert_training report $(RUNS) --output_dir $(or $(OUT),report)

# An environment of its own with the extra `docs`, without the project: the docstrings are read, and nothing is imported.
# The pages are built from a copy, because zensical 0.0.73 stands still where .venv has tens of thousands of files.
site: $(SITE)/installed ## build the documentation as a site into site/; warnings and broken links are errors
	rm -rf site build/pages
	mkdir -p build/pages
	git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C build/pages
	cd build/pages && NO_COLOR=1 $(CURDIR)/$(SITE)/bin/zensical build --clean --strict
	mv build/pages/site site
	$(SITE)/bin/python .ci/check_site.py site

$(SITE)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(call INSTALL_WITH,$(SITE)) --quiet $(PIP_FLAGS) -c constraints.txt $$($(SITE)/bin/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

release: install ## build sdist and wheel of the committed files into dist/ and try them in a clean environment
	PYTHON="$(CURDIR)/$(BIN)/python" PIP_FLAGS="$(PIP_FLAGS)" TORCH_FLAGS="$(TORCH_FLAGS)" .ci/release
