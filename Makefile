# What a contributor runs; PYTHON names another interpreter. `.ci/run` does all of it and more, from a fresh clone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install check test slow docs

install: # .venv with the package in place, compiled, and the tools in the versions that passed last
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/pip install -e '.[dev]' -c .ci/constraints.txt

check: # style, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint --max-line-length 120 trace_analyzer
	$(BIN)/mypy
	$(BIN)/lint-imports

test: # the quick tier
	$(BIN)/python -m pytest -q -n auto --dist loadfile

slow: # all tests
	$(BIN)/python -m pytest -q -n auto --dist loadfile --slow

docs: # write the generated pages again, and check all
	$(BIN)/python docs/generate.py
	$(BIN)/python .ci/check_docs.py
