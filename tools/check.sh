#!/bin/sh
# All checks. usage: check.sh quick|all
#   quick: what every change must pass, in well under 50 minutes on two cores.
#   all:   the same without subsets, and longer fuzzing.
set -eu
cd "$(dirname "$0")/.."
mode=${1:-quick}
jobs=$(nproc)
case "$mode" in
  quick) fuzz_seconds=12 ;;
  all) fuzz_seconds=600 ;;
  *) echo "usage: check.sh quick|all" >&2; exit 2 ;;
esac

stage() {
  now=$(date +%s)
  echo "== $* (minute $(((now - started) / 60)))"
}
started=$(date +%s)

stage "g++: build without warnings, all tests"
cmake -G Ninja -S . -B build -DFATHOM_WERROR=ON -DFATHOM_BENCH=ON -DFATHOM_PCH=ON >/dev/null
ninja -C build
# Speed is checked elsewhere: tests have generous time limits and share the cores.
ctest --test-dir build --output-on-failure -j "$jobs" --timeout 1500

stage "clang 19: build without warnings, with address and undefined behaviour checks; parsers' fuzz targets"
cmake -G Ninja -S . -B build/sanitize -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 \
  -DFATHOM_OPTIMIZATION=-O1 -DFATHOM_WERROR=ON \
  -DFATHOM_SANITIZE=fuzzer-no-link,address,undefined -DFATHOM_FUZZ=ON -DFATHOM_WEB=OFF -DFATHOM_PCH=ON >/dev/null
# The quick run builds what faces files and strangers; programs and pack tools are left to the full one.
checked="base tensor format model text cpu engine capi grammar server measure scheduler damaged_weights c_api"
if [ "$mode" = quick ]; then
  fuzzers=$(cd fuzz && ls fuzz_*.cc | sed 's/\.cc$//')
  # shellcheck disable=SC2046,SC2086
  ninja -C build/sanitize $(printf '%s_test ' $checked golden mini) $fuzzers
else
  ninja -C build/sanitize
fi
export UBSAN_OPTIONS=print_stacktrace=1
# The oracle and the documents do not depend on the compiler; the models run on their smallest members.
if [ "$mode" = quick ]; then
  ctest --test-dir build/sanitize --output-on-failure -j "$jobs" --timeout 1500 \
    -R "^($(echo $checked | tr ' ' '|'))\$"
  build/sanitize/bin/golden_test --gtest_brief=1 --gtest_filter='*g3*:*g6*:-*reference*:*Chunking*'
  build/sanitize/bin/mini_test --gtest_brief=1 --gtest_filter='*Greedy*:*Refuse*:*refused*'
else
  ctest --test-dir build/sanitize --output-on-failure -j "$jobs" --timeout 3000 -E 'oracle|rooms|docs'
fi
for fuzzer in build/sanitize/bin/fuzz_*; do
  name=$(basename "$fuzzer")
  mkdir -p "build/corpus/$name"
  seeds=fuzz/corpus/${name#fuzz_}
  [ -d "$seeds" ] || seeds=
  # shellcheck disable=SC2086
  "$fuzzer" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=0 -verbosity=0 \
    "build/corpus/$name" $seeds
  echo "$name: $fuzz_seconds s without a finding"
done

if [ "$mode" = all ]; then
  stage "g++: the server and its threads with checks for races"
  cmake -G Ninja -S . -B build/threads -DFATHOM_OPTIMIZATION=-O1 -DFATHOM_WERROR=ON -DFATHOM_SANITIZE=thread \
    -DFATHOM_WEB=OFF -DFATHOM_PCH=ON >/dev/null
  ninja -C build/threads engine_test scheduler_test server_test measure_test fathom
  # One at a time: what these tests wait for takes ten times as long here.
  ctest --test-dir build/threads --output-on-failure --timeout 3000 -R '^(engine|scheduler|server|measure|serve)$'
fi

if [ "$(uname -m)" = x86_64 ]; then
  stage "a CPU without AVX-512, emulated"
  # Kernels of the other instruction sets must not have leaked into common code.
  qemu="qemu-x86_64 -cpu Haswell"
  $qemu build/bin/cpu_test --gtest_brief=1 \
    --gtest_filter='CpuSelect.*:CpuRows.R*:CpuLinear.Scales*:CpuExperts.MatchTheDefinition'
  $qemu build/bin/golden_test --gtest_brief=1 \
    --gtest_filter='*ExactPrefill*g3*avx2*:*ExactPrefill*g6*portable*:*Official*/avx2'
  $qemu build/bin/fathom run --threads 1 -n 8 --temp 0 "Once upon a time" >/dev/null

  stage "64-bit ARM: cross-compiled without warnings, tests emulated"
  cmake -G Ninja -S . -B build/arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DFATHOM_WERROR=ON \
    -DFATHOM_WEB=OFF -DFATHOM_PCH=ON >/dev/null
  qemu=qemu-aarch64
  if [ "$mode" = quick ]; then
    ninja -C build/arm64 base_test tensor_test cpu_test golden_test
    for test in base tensor cpu; do
      $qemu "build/arm64/bin/${test}_test" --gtest_brief=1
    done
    $qemu build/arm64/bin/golden_test --gtest_brief=1 \
      --gtest_filter='*ExactPrefill*g3*neon*:*ExactPrefill*g6*neon:*Official*/neon*'
    # Before the dot product extension.
    $qemu -cpu cortex-a57 build/arm64/bin/cpu_test --gtest_brief=1 --gtest_filter='CpuSelect.*:CpuRows.R*'
  else
    ninja -C build/arm64
    # The emulator cannot map a file larger than memory.
    GTEST_FILTER='-*OpensAHugeSparseFile*' \
      ctest --test-dir build/arm64 --output-on-failure -j "$jobs" --timeout 3000 \
      -E 'oracle|rooms|docs|cli|pack_tools|^serve$|web'
    $qemu build/arm64/bin/fathom run --threads 2 -n 8 --temp 0 "Once upon a time" >/dev/null
  fi
fi

stage "done"
ctest --test-dir build --output-on-failure -R 'rooms|docs'
