#!/bin/sh
# Tests of the pages. usage: run.sh unit|browser|report BUILD_FOLDER_OF_THE_PAGES [FATHOM or REPORT_SAMPLE]
# Ends with 77, which CTest counts as skipped, where what they need is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1
work=$2

if [ ! -d "$work/dist" ] || [ ! -d "$work/node_modules/vitest" ]; then
  echo "skipped: the pages were not built; they need npm and node 20.19 or later (FATHOM_WEB)"
  exit 77
fi
case "$mode" in
  unit)
    cd "$work"
    node node_modules/typescript/bin/tsc -p .
    exec node node_modules/vitest/vitest.mjs run
    ;;
  browser|report)
    chromium=${FATHOM_CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
    if [ -z "$chromium" ]; then
      echo "skipped: chromium is missing; tools/setup.sh test installs it"
      exit 77
    fi
    export FATHOM_WEB_BUILD="$work" FATHOM_CHROMIUM="$chromium"
    [ "$mode" = browser ] || FATHOM_REPORT_SAMPLE=$3 exec node --test-reporter=spec "$here/report.test.mjs"
    FATHOM_BINARY=$3 exec node --test-reporter=spec "$here/browser.mjs"
    ;;
  *) echo "usage: run.sh unit|browser|report BUILD_FOLDER_OF_THE_PAGES [PROGRAM]" >&2; exit 2 ;;
esac
