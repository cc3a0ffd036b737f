# Two commands do everything on a fresh machine: `make demo` and `make test`.
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RKNN   := build/rknn-venv
PYTHON ?= python3
CONFIG ?= configs/smollm2-135m-bf16.toml
NAME   := $(shell sed -n 's/^name *= *"\(.*\)"/\1/p' $(CONFIG) 2>/dev/null)
# Real engines and their weights; of the packages only these files are used, not what they require
REAL   := silero-vad silero-vad-axera
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: known demo test test-aarch64 rknn test-rknn check bench fidelity deps setup format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	@tools/have-deps || $(MAKE) deps
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt $(REAL)
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

# A closed compiler in an environment of its own: docs/rknn.md
rknn: $(RKNN)/.installed

$(RKNN)/.installed: tools/rknn-constraints.txt
	@rm -f $@
	@test -x $(RKNN)/bin/python || $(PYTHON) -m venv $(RKNN)
	$(RKNN)/bin/python -m pip install --quiet -c tools/rknn-constraints.txt setuptools numpy onnx onnxruntime protobuf scipy \
	  opencv-python-headless psutil ruamel.yaml tqdm fast-histogram filelock typing_extensions networkx jinja2 fsspec sympy
	$(RKNN)/bin/python -m pip install --quiet --no-deps torch==2.13.0 rknn-toolkit2==2.5.0
	@touch $@

test-rknn: $(STAMP) rknn
	$(BIN)/pytest -q tests/rknn

bench: $(STAMP)
	$(BIN)/python -m tests.bench

# Real weights through every kind of engine: docs/fidelity.md
fidelity: $(STAMP)
	$(BIN)/python -m tests.fidelity

# Layouts of public engines, decoded anew: layouts/known
known: $(STAMP)
	tools/known-layouts

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build $(VENV)
