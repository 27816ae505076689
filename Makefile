# Two commands do everything: `make lab` and `make test`. The others are parts of those two.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.allranks-setup
JS := utils/js
JS_TOOLS := $(JS)/node_modules/.package-lock.json
# how many test files run at once; one more than the two cores that the tests are made for, since many wait
WORKERS ?= 3
# the tools' caches lie in the checkout, unless it can't be written to
CACHE := $(shell test -w . && pwd || echo "$${XDG_CACHE_HOME:-$$HOME/.cache}/allranks-tests")
export RUFF_CACHE_DIR := $(CACHE)/.ruff_cache
export MYPY_CACHE_DIR := $(CACHE)/.mypy_cache
# else each of the many processes that tests start would compile the package anew
unexport PYTHONDONTWRITEBYTECODE
PYTEST := -m pytest -o cache_dir="$(CACHE)/.pytest_cache" -n $(WORKERS) --no-loadscope-reorder

.PHONY: help setup lab test test-all test-more test-record test-servers test-ranks test-nightly coverage notebooks js js-tools site bench lock verify kit lint clean
.DEFAULT_GOAL := help

help:
	@echo "make lab            set up what is missing, warm the engines, open JupyterLab at the map"
	@echo "make test           set up what is missing, check the style, run the core and the tests that a change reaches (SINCE=REVISION: since then)"
	@echo "make test-all       every check and test but those of servers and nightly ones"
	@echo "make test-servers   JupyterHub, the image, Slurm, SSH, several machines and one without a network, played on this one; needs root and their programs"
	@echo "make test-nightly   the same with what takes hours: other world sizes, long storms"
	@echo "make test-ranks     every chapter on 2, 3 and 8 ranks, with its answers too"
	@echo "make coverage       the tests once more, counting which lines of the package and the grader they run"
	@echo "make setup          the environment in .venv only   (TORCH=cpu or TORCH=gpu overrides the choice)"
	@echo "make notebooks      build every .ipynb from its percent script, and draw docs/pictures"
	@echo "make js             format, check and bundle the widgets' JavaScript after a change; needs Node.js 20"
	@echo "make site           the executed course as static pages in site/   (ARGS=chapters/1_first_hours/04_all_reduce.ipynb runs only that, ARGS=--live-only the live pages)"
	@echo "make bench          measure what docs/promises.md quotes"
	@echo "make lock           write uv.lock after a change of pyproject.toml or constraints.txt"
	@echo "make verify         prove this machine in ten minutes, GPU or not; the record goes to docs/verified/   (ARGS=\"--gpus 1\")"
	@echo "make kit            a folder to carry to a machine without a network   (PYTHON_VERSION=3.12 NCCL=download OUT=...)"

$(STAMP): pyproject.toml constraints.txt tools/setup.py
	$(PYTHON) tools/setup.py $(if $(TORCH),--torch $(TORCH))

setup: $(STAMP)

lab: $(STAMP)
	$(BIN)/allranks lab $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# what has changed since it last passed here, or since a revision; in a fresh clone the core and one of everything
test: $(STAMP) lint
	ALLRANKS_TESTS=change SINCE=$(SINCE) $(BIN)/python $(PYTEST) $(ARGS)

# of what `make test` leaves out in a fresh clone, a part of two minutes, another for each commit
test-more: $(STAMP)
	ALLRANKS_TESTS=more $(BIN)/python $(PYTEST) $(ARGS)

test-all: $(STAMP) lint
	$(BIN)/python $(PYTEST) $(ARGS)

# what each test takes, for the order of the tests and the time of `make test`
test-record: $(STAMP)
	rm -rf "$(CACHE)/.test-record"; mkdir "$(CACHE)/.test-record"
	ALLRANKS_TEST_RECORD="$(CACHE)/.test-record" $(BIN)/python $(PYTEST) $(ARGS); $(BIN)/python tests/recorder.py "$(CACHE)/.test-record"

# what takes too long for every change: chapters with their answers and on other world sizes, the long storms
test-nightly: $(STAMP) lint
	ALLRANKS_NIGHTLY=1 ALLRANKS_TEST_RANKS=2,3,4,8 ALLRANKS_STORM=200 ALLRANKS_CALLS=20000 ALLRANKS_LEASE_CYCLES=10000 \
	$(BIN)/python $(PYTEST) --timeout=3600 $(ARGS)

# what administrators rely on: JupyterHub, the image, Slurm, SSH, several machines; a test says so where their programs are not there
test-servers: $(STAMP)
	$(BIN)/python $(PYTEST) -m servers $(ARGS)

# every chapter on other world sizes
test-ranks: $(STAMP)
	ALLRANKS_NIGHTLY=1 ALLRANKS_TEST_RANKS=2,3,8 $(BIN)/python $(PYTEST) tests/notebooks $(ARGS)

# a process that was killed while it wrote leaves a file that combine can't read, and says so
coverage: $(STAMP)
	rm -f .coverage .coverage.*
	$(BIN)/coverage run $(PYTEST) $(ARGS); status=$$?; \
	$(BIN)/coverage combine -q; $(BIN)/coverage report --skip-covered && exit $$status

notebooks: $(STAMP)
	$(BIN)/python tools/notebooks.py $(ARGS)
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/cost_figures.py

$(JS_TOOLS): $(JS)/package-lock.json
	npm --prefix $(JS) ci
	touch $@

js-tools: $(JS_TOOLS)

js: $(JS_TOOLS)
	for script in fix types test build; do npm --prefix $(JS) run --silent $$script || exit 1; done

.venv/.allranks-site: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[site]"
	touch $@

site: .venv/.allranks-site $(if $(findstring --no-live,$(ARGS)),,$(JS_TOOLS))
	$(BIN)/python tools/site.py $(ARGS)

# uv.lock, with the versions of constraints.txt
lock: $(STAMP)
	$(BIN)/uv lock --python $(BIN)/python $(shell sed 's/^/-P /' constraints.txt)

bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

verify: $(STAMP)
	$(BIN)/allranks verify $(ARGS)

# for a machine without a network: the checkout, wheels, NCCL's wheel in slices and the script that proves it
kit: $(STAMP)
	$(BIN)/python tools/kit.py $(if $(PYTHON_VERSION),--python-version $(PYTHON_VERSION)) $(if $(OUT),--out $(OUT)) \
	$(if $(WHEELS),--wheels $(WHEELS)) $(if $(NCCL),--nccl $(NCCL)) $(ARGS)

clean:
	rm -rf .venv build dist site $(JS)/node_modules .pytest_cache .ruff_cache .mypy_cache .coverage .coverage.*
