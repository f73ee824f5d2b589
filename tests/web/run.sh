#!/bin/sh
# Tests of the chat page. usage: run.sh unit|browser BUILD_FOLDER_OF_THE_PAGE [FATHOM]
# Ends with 77, which CTest counts as skipped, where what they need is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1
work=$2

if [ ! -d "$work/dist" ] || [ ! -d "$work/node_modules/vitest" ]; then
  echo "skipped: the chat page was not built; it needs npm and node 20.19 or later (FATHOM_WEB)"
  exit 77
fi
case "$mode" in
  unit)
    cd "$work"
    node node_modules/typescript/bin/tsc -p .
    exec node node_modules/vitest/vitest.mjs run
    ;;
  browser)
    chromium=${FATHOM_CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
    if [ -z "$chromium" ]; then
      echo "skipped: chromium is missing; tools/setup.sh test installs it"
      exit 77
    fi
    FATHOM_WEB_BUILD=$work FATHOM_CHROMIUM=$chromium FATHOM_BINARY=$3 \
      exec node --test-reporter=spec "$here/browser.mjs"
    ;;
  *) echo "usage: run.sh unit|browser BUILD_FOLDER_OF_THE_PAGE [FATHOM]" >&2; exit 2 ;;
esac
