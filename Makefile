# Two commands do everything on a fresh machine: `make demo` and `make test`.
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTHON ?= python3
CONFIG ?= configs/smollm2-135m-bf16.toml
NAME   := $(shell sed -n 's/^name *= *"\(.*\)"/\1/p' $(CONFIG) 2>/dev/null)
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: demo test test-aarch64 check bench fidelity deps setup format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	@tools/have-deps || $(MAKE) deps
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

deps:
	tools/install-deps

demo: $(STAMP)
	$(BIN)/luigi --module tasks BuildEngineSet --config $(CONFIG)
	$(BIN)/engineset run build/sets/$(NAME) "The capital of France is"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -m "not slow" -n 2 --dist loadscope

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadscope

# The native half built for 64-bit Arm and run under emulation: the same bits as here.
test-aarch64: $(STAMP)
	@command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || tools/install-deps packages-aarch64.txt
	cmake -S native -B build/aarch64 -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/aarch64.cmake
	cmake --build build/aarch64
	$(BIN)/pytest -q tests/aarch64

bench: $(STAMP)
	$(BIN)/python -m tests.bench

# Real weights through every kind of engine: docs/fidelity.md
fidelity: $(STAMP)
	$(BIN)/python -m tests.fidelity

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build $(VENV)
