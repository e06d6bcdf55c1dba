# SPDX-License-Identifier: Apache-2.0
# The two commands: `make run` and `make test`. Each does its own set-up.

PYTHON ?= python3
BIN := .venv/bin
# Two tests for each core: most of them wait for other processes. The slow and long ones compute.
CORES := $(shell nproc 2>/dev/null || echo 2)
QUICK := -n $(shell echo $$(( $(CORES) > 3 ? 8 : 2 * $(CORES) ))) --dist worksteal -m "not slow and not long"
COMPUTING := -n $(shell echo $$(( $(CORES) > 8 ? 8 : $(CORES) ))) --dist worksteal
SLOW := $(COMPUTING) -m "slow and not alone"
LONG := $(COMPUTING) -m long

# Each process would compile our modules anew; a controller takes a quarter longer to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run mininet shim mltcp test test-slow test-long coverage lint format setup p4 shell wire wheel dashboard docs clean help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: .venv/.run ## measure the default scenarios, then serve the live fabric (ONCE=1 RUN_JSON=file OFFSETS=n SCENARIO=name SEED=n)
	@$(BIN)/polyrhythm run $(if $(ONCE),--once) $(if $(RUN_JSON),--json $(RUN_JSON)) \
	  $(if $(OFFSETS),--offsets $(OFFSETS)) $(if $(SEED),--seed $(SEED)) $(SCENARIO)

test: .venv/.dev ## every test but the slow and long ones
	@$(BIN)/python -m pytest $(QUICK)

test-slow: .venv/.dev ## the slow tests
	@$(BIN)/python -m pytest $(SLOW)
	@$(BIN)/python -m pytest -m alone

test-long: .venv/.dev ## tests that take minutes each, and that CI leaves out
	@$(BIN)/python -m pytest $(LONG)

coverage: .venv/.dev ## make test, and the share of lines that it runs, with a floor (pyproject.toml)
	@rm -rf out/coverage && mkdir -p out/coverage
	@$(BIN)/coverage run -m pytest $(QUICK)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

lint: .venv/.dev ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: .venv/.dev ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

setup: .venv/.run ## the virtual environment alone

p4: .venv/.run ## recompile p4/ with the pinned p4c, and for Tofino, where they are on PATH
	@$(BIN)/python -m polyrhythm.p4tool build

dashboard: .venv/.run ## rebuild dashboard/dist with Node 20.19 or newer, from this machine or from PyPI
	@$(BIN)/python -m polyrhythm.pagetool usable-node || $(BIN)/pip install -q --disable-pip-version-check --group node
	@$(BIN)/python -m polyrhythm.pagetool build

shim: ## build the shims, which pin queue pairs and TCP connections of training processes (needs cc)
	@$(MAKE) -s -C hostagent/shim
	@echo hostagent/shim/build/libpolyrhythm-verbs.so hostagent/shim/build/libpolyrhythm-sockets.so

mltcp: ## build MLTCP for the kernel's TCP, an eBPF program (needs clang and libbpf-dev)
	@$(MAKE) -s -C hostagent/mltcp_bpf
	@echo hostagent/mltcp_bpf/build/mltcp_reno.bpf.o

mininet: .venv/.emulation ## a scenario on network namespaces (root; SCENARIO=name)
	@$(BIN)/polyrhythm run $(or $(SCENARIO),two_vgg19) --fabric mininet --once $(if $(RUN_JSON),--json $(RUN_JSON))

shell: .venv/.run .venv-shell/.ready ## p4runtime-shell on a switch of the live fabric (SWITCH=leaf1)
	@$(BIN)/polyrhythm shell $(or $(SWITCH),leaf1)

wire: .venv/.dev ## regenerate the agent protocol's code
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. controller/wire/agent.proto

wheel: .venv/.dev ## build both wheels into dist/: polyrhythm, and polyrhythm-job for training containers
	@$(BIN)/pip wheel -q --no-deps -w dist . ./hostagent/job_library

docs: .venv/.docs ## build the documentation site into site/, offline; warnings are errors
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d out/doctrees docs site
	@echo site/index.html

clean: ## remove the environments and what was built
	@rm -rf .venv .venv-shell dist .mypy_cache .ruff_cache .pytest_cache .hypothesis out/coverage site docs/reference/_generated out/doctrees

# pip reads dependency groups from 25.1 on.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Polyrhythm needs Python 3.11 or newer; say which: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "python3-venv is missing: apt-get install python3-venv" >&2; rm -rf .venv; exit 2; }
	@$(BIN)/pip install -q --disable-pip-version-check "pip>=25.1,<27"

.venv/.run: .venv/bin/python pyproject.toml
	@echo "setting up .venv ..." >&2
	@$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

# Mininet's release on PyPI is a pre-release, which pip takes only where it is named.
.venv/.emulation: .venv/.run
	@$(BIN)/pip install -q --disable-pip-version-check -e ".[emulation]"
	@touch $@

# An environment of its own: p4runtime-shell pins an older protobuf than finsy needs.
.venv-shell/.ready: pyproject.toml | .venv/.run
	@$(PYTHON) -m venv --clear .venv-shell
	@.venv-shell/bin/pip install -q --disable-pip-version-check $$($(BIN)/polyrhythm shell --requirements)
	@touch $@

.venv/.dev: .venv/.run
	@$(BIN)/pip install -q --disable-pip-version-check --group dev
	@touch $@

.venv/.docs: .venv/.run
	@$(BIN)/pip install -q --disable-pip-version-check --group docs
	@touch $@
