# Each target starts from nothing: it needs Python 3.11 or later, make, and a package index.
#
#   make run        a server with a database and a runner, to try it out
#   make test       all tests; those whose tool is not here are listed as skipped
#   make test-crdb CRDB_DSN=…   all tests on a CockroachDB cluster of yours; they make databases and drop them
#   make lint       style, types, import contracts, the contract, generated code and docs
#   make bench      how fast it is, as ratios; needs Go, about five minutes, and a machine that does nothing else;
#                   bench-peers measures beside others, bench-growth with ten million events
#   make faults     an hour of faults under load, and the checker: ARGS="--minutes 60 --seed 7"; as root, every kind
#   make fuzz       any number of messages that nobody meant: ARGS="--messages 1000000 --seed 7"
#   make soak       an hour of mixed load, and whether anything grew: ARGS="--minutes 60 --seed 1"; writes docs/soak.md
#   make image      the container image `turnlog`, by docker, podman or buildah
#   make test-image makes the image without a registry of images and runs it; as root, needs buildah and debootstrap
#   make generate   the Python that is committed beside the contract, the docs made from the code
#
# ARGS goes to the command: make run ARGS="--listen 127.0.0.1:8000", make test ARGS="-k lane".
# Other databases for all tests: make test ARGS="--engine crdb-wire"; tests/support/engines.py tells which there are.

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3 python, \
            $(shell $(name) -c '$(RECENT)' 2>/dev/null && echo $(name))))

.PHONY: run test test-crdb lint bench faults fuzz generate soak image test-image
.SUFFIXES:

run: $(VENV)/.has-server
	@exec $(BIN)/turnlog-server dev --with-runner $(ARGS)

# Most of a test is waiting for processes, so more run at once than there are cores. A file stays in one worker.
WORKERS ?= 4

test: $(VENV)/.has-dev
	@exec $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

# Each test database is migrated there, which takes a while.
test-crdb: $(VENV)/.has-dev
	@test -n "$(CRDB_DSN)" || { echo "Name a cluster that tests may fill: make test-crdb CRDB_DSN=postgresql://…" >&2; exit 1; }
	@CRDB_DSN="$(CRDB_DSN)" exec $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --engine crdb $(ARGS)

lint: $(VENV)/.has-dev
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/python proto/generate.py --check
	$(BIN)/python docs/generate.py --check

bench: $(VENV)/.has-dev
	@exec $(BIN)/python bench/run.py $(ARGS)

bench-peers: $(VENV)/.has-dev
	@exec $(BIN)/python bench/peers.py $(ARGS)

bench-growth: $(VENV)/.has-dev
	@exec $(BIN)/python bench/growth.py $(ARGS)

faults: $(VENV)/.has-dev
	@exec $(BIN)/python tests/campaign/run.py $(ARGS)

fuzz: $(VENV)/.has-dev
	@PYTHONPATH=tests exec $(BIN)/python -m fuzz $(ARGS)

soak: $(VENV)/.has-dev
	@PYTHONPATH=tests exec $(BIN)/python -m soak $(ARGS)

ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(shell command -v $(name))) docker)

image:
	$(ENGINE) build $(ARGS) -t turnlog .

# Not one of the tests that `make test` runs: it takes minutes, and a gigabyte while it runs.
test-image: $(VENV)/.has-dev
	@exec $(BIN)/python -m pytest tests/image/built_image.py $(ARGS)

generate: $(VENV)/.has-dev
	$(BIN)/python proto/generate.py
	$(BIN)/python docs/generate.py

# Marks that stand for what is installed: made again when pyproject.toml says something else.
$(VENV)/.has-server: pyproject.toml | $(VENV)/.made
	@echo "Installing Turnlog and what it needs: under a minute on a normal line."
	@$(PIP) install -e '.[server]'
	@touch $@

$(VENV)/.has-dev: pyproject.toml | $(VENV)/.made
	@echo "Installing Turnlog, what it needs, and what its tests need."
	@$(PIP) install -e '.[server]' --group dev
	@touch $@ $(VENV)/.has-server

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Turnlog needs Python 3.11 or later, and none is on the path. \
	Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(RECENT)' || { echo "$(PYTHON) is older than Python 3.11, which Turnlog needs." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: \
	install its venv module (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@# Dependency groups are known to pip from 25.1 on.
	@$(PIP) install --upgrade 'pip>=25.1'
	@touch $@
