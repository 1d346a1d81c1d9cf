# `make demo` and `make test` do everything on a fresh machine; both do the set-up first, once. With GPU=1 the set-up is
# the one for NVIDIA GPUs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV   ?= .venv
BIN    := $(VENV)/bin
GPU    ?= $(if $(wildcard $(VENV)/.installed-gpu),1)
# Interpreters to try, in this order.
PYTHON ?= $(if $(GPU),,python3.11) python3.12 python3
# A lock for CPU machines and one for GPU machines. Everything in each was seen to work together; --no-deps keeps out what
# vLLM's metadata asks for beside it (on a CPU: CUDA builds of torchvision, torchaudio and triton, which break imports).
LOCK   := requirements/$(if $(GPU),gpu,cpu).lock.txt
STAMP  := $(VENV)/.installed$(if $(GPU),-gpu)
TEST_STAMP := $(VENV)/.installed-test
DOCS_STAMP := $(VENV)/.installed-docs
PAGE   := cudal1_ray/serving/page/source
PIP_INSTALL = $(BIN)/python -m pip install --quiet --no-deps


.PHONY: demo test test-long setup lint docs page clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## the virtual environment, nothing else; GPU=1: for NVIDIA GPUs
	@echo "setup: done; now: source $(VENV)/bin/activate"

$(STAMP): $(LOCK) pyproject.toml
	@rm -f $(STAMP)
	@for py in $(PYTHON) none; do "$$py" -c 'import sys; sys.exit(not (3, $(if $(GPU),12,11)) <= sys.version_info[:2] < (3, 13))' \
	    2>/dev/null && break; done; \
	  [ "$$py" != none ] \
	  || { echo "setup: Python $(if $(GPU),3.12,3.11 or 3.12) is needed; say where: make $(MAKECMDGOALS)$(if $(GPU), GPU=1) PYTHON=/path/to/python" >&2; exit 2; }; \
	  [ -z "$(GPU)" ] || command -v nvidia-smi >/dev/null || echo "setup: no nvidia-smi here; the packages are installed all the same" >&2; \
	  [ -x $(BIN)/python ] || "$$py" -m venv $(VENV)
	@echo "setup: installing $(LOCK) into $(VENV), about $(if $(GPU),9,3) GB, some minutes the first time"
	@$(PIP_INSTALL) --requirement $(LOCK)
	@# Where `torch` resolves to a CUDA build, --no-deps has left out the libraries it loads: let pip add them.
	@$(BIN)/python -c 'import torch' 2>/dev/null || \
	  { echo "setup: this torch needs its CUDA libraries, adding them"; $(BIN)/python -m pip install --quiet "$$(grep -E '^torch==' $(LOCK))"; }
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@touch $(STAMP)

$(TEST_STAMP): $(DOCS_STAMP) requirements/test.lock.txt  # one test builds the documentation
	@$(PIP_INSTALL) --requirement requirements/test.lock.txt
	@touch $(TEST_STAMP)

demo: setup  ## set-up, then contrastive RL end to end on this machine's CPU, resumable
	@$(BIN)/cudal1 train name=demo recipe=demo

# The suite needs these plugins. To load all that are installed takes two CPU seconds more in each of three processes.
PLUGINS := --disable-plugin-autoload -p xdist -p pytest_timeout -p _hypothesis_pytestplugin

# Two workers for two cores; a file stays with one of them, since its tests share what was slow to start. Hundreds of
# processes import the package: without bytecode, which some environments forbid, each would compile it again.
test: $(TEST_STAMP)  ## set-up, then the suite
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PLUGINS) -n 2 --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=5

test-long: $(TEST_STAMP)  ## set-up, then the tests that the suite leaves out for their length
	@$(BIN)/python -m pytest -m long

lint: $(TEST_STAMP)  ## style, formatting, types, the house's words, names of our modules
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check --quiet .
	@$(BIN)/python -m mypy
	@$(BIN)/python tests/style/word_list.py
	@$(BIN)/python tests/style/references.py

docs: $(DOCS_STAMP)  ## the documentation site into build/site, strictly
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

$(DOCS_STAMP): $(STAMP) requirements/docs.lock.txt
	@$(PIP_INSTALL) --requirement requirements/docs.lock.txt
	@touch $(DOCS_STAMP)

page:  ## the page of `cudal1 serve` from its sources (needs npm; what it makes is committed)
	@command -v npm >/dev/null || { echo "page: npm is needed, from Node.js 20 or later" >&2; exit 2; }
	@cd $(PAGE) && npm ci --no-fund --no-audit --silent && npm run --silent build
	@du -sh $(PAGE)/../static

clean:  ## remove the environment; runs/ stays
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
