#!/usr/bin/env bash
# cmake/ClangToolchain.cmake takes the first clang++ that is new enough and has
# libFuzzer, and names each one that it refused. The compilers are scripts.
#
# shellcheck disable=SC2016  # what is printed expands later
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake=$(command -v cmake)
failures=0

# compiler NAME VERSION LIBRARY: one that would link LIBRARY for a fuzzer
compiler() {
  printf '#!/bin/sh\nif [ "$1" = -dumpversion ]; then echo %s; else echo " \\"ld\\" \\"%s\\"" >&2; fi\n' \
    "$2" "$3" >"$work/$1"
  chmod +x "$work/$1"
}

# expect NAME WANT: what the toolchain file chooses, or its message in one line
expect() {
  local got
  printf 'include("%s")\nmessage("chosen: ${CMAKE_CXX_COMPILER}")\n' \
    "$here/cmake/ClangToolchain.cmake" >"$work/print.cmake"
  got=$(PATH="$work" "$cmake" -P "$work/print.cmake" 2>&1 | /usr/bin/tr -s ' \n' ' ' || true)
  if [[ $got != *"$2"* ]]; then
    printf 'FAILED: %s\n  want %s\n  got  %s\n' "$1" "$2" "$got"
    failures=$((failures + 1))
  fi
}

fuzzer=$work/libclang_rt.fuzzer-x86_64.a
touch "$fuzzer"

expect "none" "no clang++ 16 or later with libFuzzer was found; hint: run scripts/setup check"

compiler clang++ 14.0.6 "$fuzzer"
compiler clang++-17 17.0.1 "$work/missing/libclang_rt.fuzzer-x86_64.a"
expect "none that fits" \
  "scripts/setup check $work/clang++ 14.0.6: older than 16 $work/clang++-17 17.0.1: no libFuzzer"

compiler clang++-16 16.0.6 "$fuzzer"
expect "an older one that has libFuzzer" "chosen: $work/clang++-16"

compiler clang++ 19.1.7 "$fuzzer"
expect "the default one" "chosen: $work/clang++"

exit $((failures > 0))
