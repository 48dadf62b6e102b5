# Needs Python 3.11 or newer and make. Everything else is installed into .venv at the first use.
#
#   make train         train the example, and show what it has written; Ctrl-C stops it well, run
#                      again it goes on. ARGS="--steps 500" RUNS=other
#   make train-torch   the same in PyTorch instead of JAX
#   make board         look at it: TensorBoard on RUNS (default: runs)
#   make test          the tests; ARGS="tests/hooks -x"
#   make test-core     those of the core, without a framework, in a .venv-core of its own
#   make test-lowest   those of one engine with the lowest versions that are supported:
#                      OF=jax (or core, tensorflow), in a .venv-lowest-jax
#   make locks         write what these versions are, tests/lowest/, anew; needs uv
#   make lint          formatting, rules, types
#   make docs          the documentation, in build/site/index.html; warnings and dead links are errors
#   make pictures      the pictures in it, from real runs; needs a Chromium
#   make release       build dist/, and check all of it but the upload
#   make bench         what runhooks costs beside its peers, in a .venv-bench of its own; writes
#                      docs/benchmarks.md. ARGS="step torch", ARGS=--list, ARGS="--compare before.json"
#   make soak          the tests that take many minutes
#   make clean         remove what was installed and cached; runs/ stays

PYTHON ?= python3
RUNS ?= runs
ARGS ?=
OF ?= core
# Each says that what an extra of pyproject.toml names is installed.
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

.PHONY: train train-torch board test test-core test-lowest locks lint docs pictures release bench soak clean

train: $(TRAIN)
	@.venv/bin/python examples/digits_jax.py --dir $(RUNS)/digits $(ARGS)
	@.venv/bin/runhooks show $(RUNS)/digits
	@echo
	@echo 'look further: make board, .venv/bin/runhooks plot $(RUNS)/digits, .venv/bin/runhooks --help'

train-torch: $(TRAIN_TORCH)
	@.venv/bin/python examples/digits_torch.py --dir $(RUNS)/digits-torch $(ARGS)
	@.venv/bin/runhooks show $(RUNS)/digits-torch
	@echo
	@echo 'look further: make board, .venv/bin/runhooks plot $(RUNS)/digits-torch, .venv/bin/runhooks --help'

board: $(if $(wildcard $(TRAIN_TORCH)),,$(TRAIN))
	@.venv/bin/tensorboard --logdir $(RUNS) --host 127.0.0.1

test: $(TEST)
	@.venv/bin/pytest $(ARGS)

soak: $(SOAK)
	@.venv/bin/pytest -m soak $(ARGS)

test-core: $(TEST_CORE)
	@.venv-core/bin/pytest --core --ignore=tests/release $(ARGS)

# Old libraries are warned by those that they stand on.
test-lowest: $(TEST_LOWEST)
	@.venv-lowest-$(OF)/bin/pytest --core --ignore=tests/release \
	  -W ignore::DeprecationWarning -W ignore::FutureWarning $(ARGS)

locks:
	@for file in tests/lowest/*.txt; do name=$$(basename "$$file" .txt); \
	  uv pip compile --quiet pyproject.toml --extra "test-$$name" --resolution lowest-direct \
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

# Twice, for the second to be equal to the first; then the wheel alone, in an environment of its own.
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

# A lock of versions, where there is one, constrains what is installed.
$(TEST_LOWEST): CONSTRAINTS = --constraint tests/lowest/$(OF).txt
$(TEST_LOWEST): tests/lowest/$(OF).txt

$(TRAIN) $(TRAIN_TORCH) $(TEST) $(SOAK) $(DOCS) $(BENCH) $(TEST_CORE) $(TEST_LOWEST): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'runhooks needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'installing into $(@D)'
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet $(CONSTRAINTS) --editable '.[$(patsubst .%,%,$(@F))]'
	@touch $@
