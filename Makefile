# Two commands: `make demo` lets the embedded model write; `make test` runs all checks.
PROMPT ?= Once upon a time, there was a little girl named Lily. She

.PHONY: all build demo test check-all bench install clean

all: build

build:
	@tools/setup.sh build
	@cmake -G Ninja -S . -B build/release -DFATHOM_TESTS=OFF >/dev/null
	@ninja -C build/release --quiet fathom

demo: build
	@build/release/bin/fathom run -n 120 --temp 0.8 --seed 7 "$(PROMPT)"

test:
	@tools/setup.sh test
	@tools/check.sh quick

# The same without subsets, with ten minutes of fuzzing a parser.
check-all:
	@tools/setup.sh test
	@tools/check.sh all

# Kernels against the machine's limits; writes docs/benchmarks/cpu.md.
bench:
	@tools/setup.sh test
	@cmake -G Ninja -S . -B build/release -DFATHOM_BENCH=ON >/dev/null
	@ninja -C build/release
	@bench/record.sh build/release/bin

install: build
	@cmake --install build/release

clean:
	rm -rf build
