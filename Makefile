# `make help` lists the targets. Everything runs in .venv, which is made when it is missing or older than pyproject.toml.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
BUF := $(VENV)/bin/buf
VENV_STAMP := $(VENV)/.stamp
PYTEST := $(PY) -m pytest
PYTEST_ARGS ?=

# protoc of grpcio-tools 1.74.0 writes gencode 6.31.1, and stubs refuse a protobuf older than that: hence an old generator, living apart.
GEN_VENV := build/gen-venv
GEN_PY := $(GEN_VENV)/bin/python
GEN_PINS := grpcio-tools==1.74.0 grpcio==1.74.0 protobuf==6.33.6 mypy-protobuf==5.1.0 \
	types-protobuf==7.35.1.20260906 googleapis-common-protos==1.70.0 setuptools==80.9.0
GEN_STAMP := $(GEN_VENV)/.stamp
PROTO_DEPS := build/proto-deps
PROTO_DEPS_STAMP := $(PROTO_DEPS)/.stamp
PROTOS = $(wildcard protos/gymckpt/v1/*.proto)
STUBS := gymckpt/v1
BASELINE := protos/baseline.binpb

NEMO_GYM_PANDAS := build/nemo-gym-pandas-2
NEMO_GYM_VENV := build/nemo-gym
NEMO_GYM_NEEDS := nemo-gym==0.7.0 'gymckpt[cli,pandas]' pytest pytest-asyncio httpx -r tests/nemo_gym/verifiers_requirements.txt
NEMO_GYM_PY = $(or $(NEMO_GYM_PYTHON),$(NEMO_GYM_VENV)/bin/python)

DEMO := servers.demo
DEMO_ARGS ?=
# The recorded tasks of NeMo Gym where they are, else the built-in ones.
WORKPLACE_DATA := $(or $(GYMCKPT_SHARED),../shared)/data/nemo_gym/workplace_assistant
TASK_ARGS := $(if $(wildcard $(WORKPLACE_DATA)),--tasks $(WORKPLACE_DATA)/example.jsonl --tables $(WORKPLACE_DATA)/csv)
EVIDENCE_ARGS ?=
CHAOS_ARGS ?=
BENCH := tests.bench

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##: environment

.PHONY: venv
venv: $(VENV_STAMP) ## Make or refresh .venv with everything that development needs

$(VENV_STAMP): pyproject.toml
	@.ci/python-env $(VENV) -e '.[dev]'
	@touch $@

$(GEN_STAMP): Makefile
	@.ci/python-env $(GEN_VENV) $(GEN_PINS)
	@touch $@

# google.rpc comes from the generator's own environment, so that protoc and buf read the same files.
$(PROTO_DEPS_STAMP): $(GEN_STAMP)
	@rm -rf $(PROTO_DEPS) && mkdir -p $(PROTO_DEPS)/google/rpc
	@cp $$($(GEN_PY) -c 'import google.rpc; print(google.rpc.__path__[0])')/{code,error_details,status}.proto $(PROTO_DEPS)/google/rpc/
	@touch $@

##: the wire contract

# $(1): where the package tree of the stubs starts
define generate
	@test -n '$(PROTOS)' || { echo 'error: no .proto files in protos/gymckpt/v1' >&2; exit 1; }
	@PATH="$(CURDIR)/$(GEN_VENV)/bin:$$PATH" $(GEN_PY) -m grpc_tools.protoc -Iprotos -I$(PROTO_DEPS) \
		--python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)
	@cd $(1)/$(STUBS) && for stub in *_pb2_grpc.py; do \
		grep -q '^service ' "$(CURDIR)/protos/gymckpt/v1/$${stub%_pb2_grpc.py}.proto" || rm -f "$$stub" "$${stub}i"; done
endef

.PHONY: gen
gen: $(PROTO_DEPS_STAMP) ## Generate gymckpt/v1 from protos/gymckpt/v1
	@echo '==> generating $(STUBS)'
	@rm -f $(STUBS)/*_pb2*
	$(call generate,.)

.PHONY: gen-check
gen-check: $(PROTO_DEPS_STAMP) ## Fail unless the committed stubs are what the protos generate
	@echo '==> comparing $(STUBS) with freshly generated stubs'
	@rm -rf build/gen-check && mkdir -p build/gen-check/$(STUBS)
	$(call generate,build/gen-check)
	@diff -ru --exclude=__init__.py --exclude=__pycache__ build/gen-check/$(STUBS) $(STUBS) || \
		{ echo 'error: the stubs are not what the protos generate; run `make gen` and commit the result' >&2; exit 1; }

.PHONY: proto-lint
proto-lint: $(VENV_STAMP) $(PROTO_DEPS_STAMP) ## Lint the protos and check their format
	@echo '==> buf lint, buf format'
	@$(BUF) lint protos
	@$(BUF) format protos --diff --exit-code

# Until the first release nobody depends on the contract, so a break is told and allowed.
.PHONY: proto-breaking
proto-breaking: $(VENV_STAMP) $(PROTO_DEPS_STAMP) ## Compare the protos with the baseline
	@echo '==> buf breaking against $(BASELINE)'
	@test -f $(BASELINE) || { echo 'error: $(BASELINE) is missing; run `make proto-baseline` and commit it' >&2; exit 1; }
	@$(BUF) breaking protos --against $(BASELINE) || { \
		if [ -n "$$(git tag --list 'v*')" ]; then \
			echo 'error: the contract breaks released clients; change it compatibly' >&2; exit 1; \
		else echo 'note: differs from the baseline; allowed before the first release tag'; fi; }

.PHONY: proto-baseline
proto-baseline: $(VENV_STAMP) $(PROTO_DEPS_STAMP) ## Make the protos as they are the baseline
	@$(BUF) build protos --exclude-source-info -o $(BASELINE)
	@echo '==> wrote $(BASELINE)'

##: checks

.PHONY: check
check: gen-check proto-lint proto-breaking lint types imports test ## Everything that must hold before a commit lands

.PHONY: lint
lint: $(VENV_STAMP) ## ruff check and ruff format --check
	@echo '==> ruff'
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

.PHONY: format
format: $(VENV_STAMP) ## Format Python and protos in place
	@$(PY) -m ruff check --fix-only
	@$(PY) -m ruff format
	@if [ -n '$(PROTOS)' ]; then $(MAKE) $(PROTO_DEPS_STAMP) && $(BUF) format protos -w; fi

.PHONY: types
types: $(VENV_STAMP) ## mypy --strict
	@echo '==> mypy'
	@$(PY) -m mypy

.PHONY: imports
imports: $(VENV_STAMP) ## The import rules
	@echo '==> import-linter'
	@$(VENV)/bin/lint-imports --no-logo

.PHONY: test
test: $(VENV_STAMP) ## Unit and contract tests
	@$(PYTEST) -n 2 --dist loadfile $(PYTEST_ARGS)

.PHONY: e2e
e2e: $(VENV_STAMP) ## Tests with real processes that are killed
	@$(PYTEST) tests/e2e -n 2 --dist loadfile $(PYTEST_ARGS)

.PHONY: nemo-gym-env
nemo-gym-env: ## Make the environment of nemo-gym, or complete the one that NEMO_GYM_PYTHON names
	@.ci/nemo-gym-env $(NEMO_GYM_VENV) $(NEMO_GYM_PANDAS)

.PHONY: nemo-gym
nemo-gym: ## Tests inside the real NeMo Gym; needs nemo-gym-env
	@'$(NEMO_GYM_PY)' -m pip install --disable-pip-version-check -q --dry-run --no-index $(NEMO_GYM_NEEDS) || \
		{ echo 'error: what is named above is missing in the environment of $(NEMO_GYM_PY); run `make nemo-gym-env` first' >&2; exit 1; }
	@GYMCKPT_OTHER_PANDAS='$(wildcard $(CURDIR)/$(NEMO_GYM_PANDAS))' '$(NEMO_GYM_PY)' -m pytest -o faulthandler_timeout=600 tests/nemo_gym $(PYTEST_ARGS)

.PHONY: interop
interop: $(VENV_STAMP) $(PROTO_DEPS_STAMP) tests/interop/node_modules/.stamp ## Speak to the servers from Node with @grpc/grpc-js
	@cd tests/interop && GYMCKPT_PYTHON='$(CURDIR)/$(PY)' node --test

tests/interop/node_modules/.stamp: $(wildcard tests/interop/package*.json)
	@command -v node >/dev/null && command -v npm >/dev/null || \
		{ echo 'error: interop needs node and npm. On Debian or Ubuntu: apt-get install nodejs npm' >&2; exit 1; }
	@echo '==> npm ci'
	@cd tests/interop && npm ci --no-audit --no-fund
	@touch $@

##: to see it work

.PHONY: demo
demo: $(VENV_STAMP) ## Run rollouts, kill every process, continue from the checkpoint
	@$(PY) -m $(DEMO) $(DEMO_ARGS)

.PHONY: evidence
evidence: $(VENV_STAMP) ## The demo over 220 rollouts in four runs, beside the figures published for NeMo Gym's own checkpointing
	@$(PY) -m servers.demo.evidence $(TASK_ARGS) $(EVIDENCE_ARGS)

.PHONY: chaos
chaos: $(VENV_STAMP) ## Rollouts on a supervised fleet while its servers are killed at random
	@$(PY) -m servers.chaos $(TASK_ARGS) $(CHAOS_ARGS)

.PHONY: bench
bench: $(VENV_STAMP) ## Measure the store and the pause
	@$(PY) -m $(BENCH)

.PHONY: clean
clean: ## Remove what is built, but not .venv
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache tests/interop/node_modules
