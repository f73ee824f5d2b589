#!/bin/sh
# Tests of the server with other people's clients. usage: run.sh PART FATHOM BUILD_FOLDER
#   sdk     openai, @anthropic-ai/sdk, ai with @ai-sdk/openai-compatible, curl
#   load    many at once; FATHOM_LOAD=full for all that docs/clients.md promises
#   agent   a coding agent
#   node22  openai 7 under Node 22, both from npm
#   figures measures what docs/benchmarks/serve.md shows
# Ends with 77, which CTest counts as skipped, where npm or its registry is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
part=$1
FATHOM=$2
export FATHOM
work=$3/clients

for tool in node npm; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is missing; tools/setup.sh test installs it"
    exit 77
  fi
done
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
  echo "skipped: the clients need node 20 or later, found $(node --version)"
  exit 77
fi

# Installs what $1/package-lock.json names into $2, once. Nothing of it runs while it is installed.
install() {
  mkdir -p "$2"
  cp "$1"/package.json "$1"/package-lock.json "$1"/.npmrc "$2/"
  if cmp -s "$1/package-lock.json" "$2/node_modules/installed-lock.json"; then return; fi
  rm -rf "$2/node_modules"
  if ! (cd "$2" && npm $how --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1); then
    cat "$2/npm.log"
    if (cd "$2" && npm view zod@4.6.7 version >/dev/null 2>&1); then
      echo "run.sh: npm could not install the packages of $1, although its registry answers" >&2
      exit 1
    fi
    echo "skipped: the packages of $1 are not installed, and npm's registry cannot be reached"
    exit 77
  fi
  cp "$1/package-lock.json" "$2/node_modules/installed-lock.json"
}

# Node looks for packages beside the tests, and packages lie in the build folder: so do the tests that run.
case "$part" in
  agent | node22) folder=$work/$part manifest=$here/$part ;;
  *) folder=$work/sdk manifest=$here ;;
esac
how=ci
# Its optional packages (terminals, clipboards, microphones) include some that no registry has; npm ci minds.
if [ "$part" = agent ]; then how="install --omit=optional --no-save"; fi
install "$manifest" "$folder"
cp "$here"/*.mjs "$folder/"
cd "$folder"
ulimit -n "$(ulimit -Hn)"
run="--test --test-reporter=spec --test-concurrency=1"
case "$part" in
  sdk) exec node $run openai.test.mjs anthropic.test.mjs ai_sdk.test.mjs curl.test.mjs ;;
  load) exec node $run load.test.mjs ;;
  agent) FATHOM_AGENT=$folder exec node $run agent.test.mjs ;;
  node22)
    for node in node_modules/node-linux-*/bin/node; do
      if [ -x "$node" ]; then exec "$node" $run openai.test.mjs; fi
    done
    echo "skipped: npm has no Node 22 for this machine"
    exit 77
    ;;
  figures) exec node figures.mjs ;;
  *) echo "usage: run.sh sdk|load|agent|node22|figures FATHOM BUILD_FOLDER" >&2; exit 2 ;;
esac
