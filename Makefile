# Needs Python 3.11 or newer and make. Everything else is installed into .venv when first needed,
# by uv, which comes from pip and takes over where pip is told to look.
#
#   make train         train the JAX example and show the results; Ctrl-C stops it cleanly, and the
#                      same command resumes it. ARGS="--steps 500" RUNS=other
#   make train-torch   train the PyTorch example
#   make board         show RUNS (default: runs) in TensorBoard
#   make test          run the tests; ARGS="tests/hooks -x"
#   make test-slow     run the tests that take seconds each, of whole programs most of them
#   make test-core     test the core without a framework, in .venv-core
#   make test-lowest   test one engine with the lowest supported versions: OF=jax (or core,
#                      stores, tensorflow, torch), in .venv-lowest-jax
#   make locks         update the lists of these versions, tests/lowest/
#   make lint          check formatting, rules and types
#   make docs          build the documentation, build/site/index.html; warnings and dead links are errors
#   make pictures      make its pictures from real runs; needs Chromium
#   make release       build dist/ and check everything but the upload
#   make bench         compare costs with other libraries, in .venv-bench, and write
#                      docs/benchmarks.md. ARGS="step torch", ARGS=--list, ARGS="--compare before.json"
#   make soak          run the tests that take many minutes; ARGS="-k loops" for random programs
#   make suites        run another library's tests from a checkout, with names of runhooks in its
#                      modules: OF=tensorflow AT=path/to/checkout
#   make clean         remove what was installed and cached; keep runs/

PYTHON ?= python3
RUNS ?= runs
ARGS ?=
OF ?= core
AT ?=
# Each file marks an extra of pyproject.toml as installed.
TRAIN := .venv/.train
TRAIN_TORCH := .venv/.train-torch
TEST := .venv/.test
SOAK := .venv/.soak
DOCS := .venv/.docs
BENCH := .venv-bench/.bench
TEST_CORE := .venv-core/.test-core
TEST_LOWEST := .venv-lowest-$(OF)/.test-$(OF)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
# The tests start hundreds of programs, which find the byte code that the first has left.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train train-torch board test test-slow test-core test-lowest locks lint docs pictures release bench soak suites clean

train: $(TRAIN)
	@.venv/bin/python examples/digits_jax.py --dir $(RUNS)/digits $(ARGS)
	@.venv/bin/runhooks show $(RUNS)/digits
	@echo
	@echo 'next: make board, .venv/bin/runhooks plot $(RUNS)/digits, .venv/bin/runhooks --help'

train-torch: $(TRAIN_TORCH)
	@.venv/bin/python examples/digits_torch.py --dir $(RUNS)/digits-torch $(ARGS)
	@.venv/bin/runhooks show $(RUNS)/digits-torch
	@echo
	@echo 'next: make board, .venv/bin/runhooks plot $(RUNS)/digits-torch, .venv/bin/runhooks --help'

board: $(if $(wildcard $(TRAIN_TORCH)),,$(TRAIN))
	@.venv/bin/tensorboard --logdir $(RUNS) --host 127.0.0.1

test: $(TEST)
	@.venv/bin/pytest $(ARGS)

test-slow: $(TEST)
	@.venv/bin/pytest -m "slow and not soak" $(ARGS)

soak: $(SOAK)
	@.venv/bin/pytest -m soak $(ARGS)

suites: $(TEST)
	@.venv/bin/python -m tests.suites $(OF) $(AT)

test-core: $(TEST_CORE)
	@.venv-core/bin/pytest --core --ignore=tests/release $(ARGS)

# Old libraries cause warnings in the libraries below them.
test-lowest: $(TEST_LOWEST)
	@.venv-lowest-$(OF)/bin/pytest --core --ignore=tests/release \
	  -W ignore::DeprecationWarning -W ignore::FutureWarning $(ARGS)

locks: $(TEST)
	@for file in tests/lowest/*.txt; do name=$$(basename "$$file" .txt); \
	  .venv/bin/uv pip compile --quiet pyproject.toml --extra "test-$$name" --resolution lowest-direct \
	    --python-version 3.11 --no-annotate --custom-compile-command 'make locks' \
	    --upgrade --output-file "$$file" || exit 1; done

lint: $(TEST)
	@.venv/bin/ruff format --check
	@.venv/bin/ruff check
	@.venv/bin/mypy

docs: $(DOCS)
	@.venv/bin/python docs/scripts/gather.py
	@.venv/bin/zensical build --clean --strict
	@.venv/bin/python docs/scripts/check.py

pictures: $(TEST)
	@.venv/bin/python docs/scripts/pictures.py

# Builds twice, to compare the results; then tests the wheel alone, in a new environment.
release: $(TEST)
	@rm -rf build/release dist
	@.venv/bin/python -m build --no-isolation --outdir dist >/dev/null
	@.venv/bin/python -m build --no-isolation --outdir build/release/again >/dev/null
	@for file in dist/*; do cmp "$$file" "build/release/again/$${file##*/}"; done
	@.venv/bin/twine check --strict dist/*
	@$(PYTHON) -m venv build/release/environment
	@build/release/environment/bin/pip install --quiet "$$(ls dist/*.whl)[cli]"
	@build/release/environment/bin/pip check
	@build/release/environment/bin/runhooks doctor
	@cd build/release && environment/bin/python ../../examples/quickstart.py
	@build/release/environment/bin/runhooks show build/release/runs/line
	@ls -l dist

bench: $(BENCH)
	@.venv-bench/bin/python -m bench $(ARGS)

clean:
	rm -rf .venv .venv-bench .venv-core .venv-lowest-* .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

# uv, unlike pip, compiles no byte code by itself: all processes of the tests would, at the same time.
$(TEST): export UV_COMPILE_BYTECODE = 1

# A lock of versions, if there is one, constrains what is installed.
$(TEST_LOWEST): CONSTRAINTS = --constraint tests/lowest/$(OF).txt
$(TEST_LOWEST): tests/lowest/$(OF).txt

$(TRAIN) $(TRAIN_TORCH) $(TEST) $(SOAK) $(DOCS) $(BENCH) $(TEST_CORE) $(TEST_LOWEST): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'runhooks needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'installing into $(@D)'
	@test -x $(@D)/bin/uv || { $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet uv; }
	@$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python $(CONSTRAINTS) \
	  --editable '.[$(patsubst .%,%,$(@F))]'
	@touch $@
