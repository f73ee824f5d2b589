#!/bin/sh
# Runs the kernel benchmarks in DIR and writes docs/benchmarks/cpu.md. Use an idle machine.
set -eu
directory=${1:?usage: bench/record.sh DIR}
mkdir -p docs/benchmarks
page=docs/benchmarks/cpu.md
{
  echo '# CPU kernels against the limits of a machine'
  echo
  echo "$(date -u +%F), commit $(git rev-parse --short HEAD), load $(cut -d' ' -f1 /proc/loadavg) at the start."
  echo "Written by \`make bench\`. A figure is the best of many short runs."
  for program in machine linear attention index_select thread_pool model; do
    echo
    echo "\`bench_$program\`"
    echo
    echo '```'
    "$directory/bench_$program" 2>/dev/null
    echo '```'
  done
} > $page.part
mv $page.part $page
echo "$page"
