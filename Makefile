# Two commands do everything on a fresh machine: `make demo` and `make test`. Both do the set-up first, once.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
# One lock for CPU machines. Everything in it was seen to work together; --no-deps keeps out the CUDA builds of
# torchvision, torchaudio and triton that vLLM's metadata asks for and that break or bloat a CPU install.
LOCK   := requirements/cpu.lock.txt
STAMP  := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
PAGE   := cudal1_ray/serving/page/source
PIP_INSTALL = $(BIN)/python -m pip install --quiet --no-deps

.PHONY: demo test test-long setup lint page clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## the virtual environment, nothing else

$(STAMP): $(LOCK) pyproject.toml
	@rm -f $(STAMP)
	@py=$$(command -v $(PYTHON) || command -v python3 || true); \
	  [ -n "$$py" ] && "$$py" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
	  || { echo "setup: Python 3.11 or 3.12 is needed; say where: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }; \
	  [ -x $(BIN)/python ] || "$$py" -m venv $(VENV)
	@echo "setup: installing into $(VENV), about 3 GB, two minutes the first time"
	@$(PIP_INSTALL) --requirement $(LOCK)
	@# Where `torch` resolves to a CUDA build, --no-deps has left out the libraries it loads: let pip add them.
	@$(BIN)/python -c 'import torch' 2>/dev/null || \
	  { echo "setup: this torch needs its CUDA libraries, adding them"; $(BIN)/python -m pip install --quiet "$$(grep -E '^torch==' $(LOCK))"; }
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@touch $(STAMP)

$(TEST_STAMP): $(STAMP) requirements/test.lock.txt
	@$(PIP_INSTALL) --requirement requirements/test.lock.txt
	@touch $(TEST_STAMP)

demo: setup  ## set-up, then contrastive RL end to end on this machine's CPU, resumable
	@$(BIN)/cudal1 train name=demo

# Two workers for two cores; a file stays with one of them, since its tests share what was slow to start.
test: $(TEST_STAMP)  ## set-up, then the suite
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: $(TEST_STAMP)  ## set-up, then the tests that the suite leaves out for their length
	@$(BIN)/python -m pytest -m long

lint: setup  ## style
	@$(BIN)/python -m ruff check cudal1_ray hydra_plugins tests benchmarks

page:  ## the page of `cudal1 serve` from its sources (needs npm; what it makes is committed)
	@command -v npm >/dev/null || { echo "page: npm is needed, from Node.js 20 or later" >&2; exit 2; }
	@cd $(PAGE) && npm ci --no-fund --no-audit --silent && npm run --silent build
	@du -sh $(PAGE)/../static

clean:  ## remove the environment; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache
