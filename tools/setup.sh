#!/bin/sh
# Installs what a build needs, by package name, on Debian 12. usage: setup.sh build|test
# Does nothing where everything is there already. Asks sudo only when it must install.
set -eu

build="g++ cmake make ninja-build ccache pkg-config libfmt-dev nlohmann-json3-dev libboost1.74-dev libssl-dev libcurl4-openssl-dev libcli11-dev libedit-dev"
test="$build libgtest-dev libbenchmark-dev libpcre2-dev clang-19 libclang-rt-19-dev qemu-user python3 chromium"
# For the build for 64-bit ARM on x86-64.
arm64="g++-aarch64-linux-gnu libfmt-dev:arm64 libssl-dev:arm64 libcurl4-openssl-dev:arm64 libgtest-dev:arm64 libedit-dev:arm64 libpcre2-dev:arm64"

case "${1:-build}" in
  build) packages=$build ;;
  test) packages=$test ;;
  *) echo "usage: setup.sh build|test" >&2; exit 2 ;;
esac

# The tokenizer is compared with one that runs on node; any node 18 or later will do, wherever it came from.
if [ "${1:-build}" = test ] && ! { command -v node && command -v npm; } >/dev/null; then
  packages="$packages nodejs npm"
fi

machine=$(dpkg --print-architecture 2>/dev/null || true)
if [ "${1:-build}" = test ] && [ "$machine" = amd64 ]; then
  packages="$packages $arm64"
fi

missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "setup.sh: apt-get is missing; install the equivalents of:$missing" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: run as root, or install sudo, to add:$missing" >&2; exit 1; }
  as_root="sudo"
fi
echo "setup.sh: installing$missing" >&2
case "$missing" in
  *:arm64*) $as_root dpkg --add-architecture arm64 ;;
esac
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
