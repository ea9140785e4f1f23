# The README's commands. Everything lives in this folder: .venv*/ (environments), .local/ (services, runs, reports).

SHELL := /bin/bash
.DEFAULT_GOAL := help
UV_VERSION := 0.13.9
UV := .local/uv/bin/uv
export PROJECT_DIR := $(CURDIR)
# A run starts a dozen Python processes. Where bytecode is not kept, each of them compiles vLLM and torch anew.
unexport PYTHONDONTWRITEBYTECODE
CLI := .venv/bin/maze-retrain
LOCAL := .venv/bin/python -m tasks.local
# Addresses of the running services, for whatever follows in the same shell.
WITH_SERVICES = eval "$$($(LOCAL) env)" && export PREFECT_HOME=$(CURDIR)/.local/prefect PREFECT_LOGGING_COLORS=false &&

.PHONY: help setup up down run run-long status plan base-model deploy worker chat rollback cleanup bench bench-curves bench-judge bench-serving check test chaos test-isa test-visgym architecture docs lock

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.synced .venv-train/.synced .venv-serve/.synced ## uv, Python 3.12 and the locked environments

$(UV):
	@found=""; for python in "$$PYTHON312" python3.12 $$HOME/.pyenv/versions/3.12.*/bin/python3.12 python3; do \
	  if [ -n "$$python" ] && "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then found="$$python"; break; fi; done; \
	if [ -z "$$found" ]; then echo "error: no Python 3.12 found; install one, or name it: make $(MAKECMDGOALS) PYTHON312=/path/to/python3.12" >&2; exit 1; fi; \
	"$$found" -m venv .local/uv && .local/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.synced: locks/flows.txt pyproject.toml | $(UV)
	@echo "installing .venv (orchestrator)"
	@$(UV) venv --quiet --allow-existing --python .local/uv/bin/python .venv
	@$(UV) pip sync --quiet --require-hashes --python .venv/bin/python locks/flows.txt
	@$(UV) pip install --quiet --no-deps --no-build-isolation --python .venv/bin/python --editable . && touch $@

.venv-train/.synced: locks/train.txt | $(UV)
	@echo "installing .venv-train (SkyRL, vLLM)"
	@$(UV) venv --quiet --allow-existing --python .local/uv/bin/python .venv-train
	@$(UV) pip sync --quiet --require-hashes --python .venv-train/bin/python locks/train.txt && touch $@

.venv-serve/.synced: locks/serve.txt | $(UV)
	@echo "installing .venv-serve (Ray Serve LLM, vLLM)"
	@$(UV) venv --quiet --allow-existing --python .local/uv/bin/python .venv-serve
	@$(UV) pip sync --quiet --require-hashes --python .venv-serve/bin/python locks/serve.txt && touch $@

up: setup ## start the local services that are not running
	@$(CLI) up

down: ## stop the local services, by pid
	@$(CLI) down

run: up ## the whole pipeline: make run [SET="max_steps=4"] [VERBOSE=1]
	@$(CLI) run local $(SET)

run-long: up ## the same run, at most three hours
	@$(CLI) run local-long $(SET)

status: setup ## what runs, how far it is; the champion; the services
	@$(CLI) status

plan: setup ## what the run on AWS would create, take and cost; no account, no GPU; on KubeRay: make plan PROFILE=kuberay
	@$(CLI) plan $(or $(PROFILE),hyperpod) $(SET)

base-model: up ## build and fine-tune the tiny base model again
	@$(CLI) run base-model/local $(SET)

deploy: $(if $(filter-out local,$(PROFILE)),setup,up) ## register what runs here in the Prefect UI; what runs on a cluster instead: make deploy PROFILE=hyperpod or kuberay
	@$(CLI) deploy $(PROFILE)

worker: up ## run what is started from the Prefect UI
	@$(CLI) worker

chat: up ## watch one maze through the endpoint: make chat MODEL=tiny-qwen3-vl:champion SEED=3
	@$(CLI) chat $(if $(MODEL),--model $(MODEL)) $(if $(SEED),--seed $(SEED))

rollback: up ## make the former champion champion again
	@$(CLI) rollback

cleanup: up ## what a run left behind: make cleanup RUN=name [REMOVE=1]
	@$(CLI) cleanup $(or $(RUN),$(error name the run: make cleanup RUN=name)) $(if $(REMOVE),--remove)

bench-curves: up ## learning curves of ours and of stock SkyRL, an hour: make bench-curves [SIDES=stock_closing_once,ours] [STEPS=12]
	@$(WITH_SERVICES) .venv/bin/python -m bench.curves $(if $(SIDES),sides=$(SIDES)) $(if $(STEPS),steps=$(STEPS))

bench: up ## a GRPO step of ours against stock SkyRL: make bench [ROUNDS=2] [VISGYM=folder]
	@$(WITH_SERVICES) .venv/bin/python -m bench.grpo $(if $(ROUNDS),rounds=$(ROUNDS)) $(if $(VISGYM),visgym=$(VISGYM))

bench-judge: setup ## simulate who is promoted, by mazes that chose the step and by fresh ones: make bench-judge [DRAWS=2000]
	@.venv/bin/python -m bench.judge $(if $(DRAWS),draws=$(DRAWS))

bench-serving: up ## measure the endpoint that the last run left behind
	@$(WITH_SERVICES) .venv/bin/python -m bench.serving

check: setup ## format, lint, types, import rules: what CI checks
	@.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/lint-imports && .venv/bin/pyright

test: setup ## the whole suite
	@$(MAKE) --no-print-directory check
	@.venv/bin/python -m pytest tests/unit -n 2 --dist loadfile
	@.venv/bin/python -m pytest tests/services -m "not chaos_only"
	@.venv-train/bin/python -m pytest tests/train

chaos: setup ## bring about every fault of docs/failures.md, also those that take long; a table at the end
	@.venv/bin/python -m pytest tests/unit tests/services -m chaos

test-isa: .venv-train/.synced ## the train tests as other processors run them: without AVX-512, without AVX; one thread, two
	@.venv-train/bin/python tests/train_on_isas.py

test-visgym: setup ## our copy of VisGym's mazes against VisGym: make test-visgym VISGYM=folder
	@$(UV) venv --quiet --allow-existing --python .local/uv/bin/python .local/visgym
	@$(UV) pip install --quiet --python .local/visgym/bin/python cloudpickle farama-notifications numpy pillow pydantic pygame typing-extensions
	@VISGYM="$(abspath $(or $(VISGYM),$(error name the checkout: make test-visgym VISGYM=folder)))" VISGYM_PYTHON=$(CURDIR)/.local/visgym/bin/python \
	  .venv/bin/python -m pytest tests/unit/maze/test_visgym.py

architecture: setup ## draw the rooms again from the code (docs/architecture.svg)
	@.venv/bin/python -m docs.draw_architecture

docs: setup ## the pages of docs/ as a site: .local/site/index.html
	@.venv/bin/python -m docs.write_commands
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml && echo .local/site/index.html

lock: $(UV) ## compile the lock files again from pyproject.toml
	@$(UV) pip compile pyproject.toml --quiet --python .local/uv/bin/python --generate-hashes --no-annotate --no-header --extra flows --extra dev -o locks/flows.txt
	@$(UV) pip compile pyproject.toml --quiet --python .local/uv/bin/python --generate-hashes --no-annotate --no-header --extra train --override locks/overrides.txt -o locks/train.txt
	@$(UV) pip compile pyproject.toml --quiet --python .local/uv/bin/python --generate-hashes --no-annotate --no-header --extra serve --override locks/overrides.txt -o locks/serve.txt
	@$(UV) pip compile pyproject.toml --quiet --python .local/uv/bin/python --generate-hashes --no-annotate --no-header --extra train-gpu --override locks/overrides-gpu.txt -o locks/train-gpu.txt
	@echo flash-attn==2.8.3 | $(UV) pip compile - --quiet --python .local/uv/bin/python --generate-hashes --no-annotate --no-header --no-deps -o locks/flash-attn.txt
