#!/usr/bin/env bash
# scripts/setup says in one clear line what it lacks, and exits non-zero.
#
# A copy of the scripts runs on a PATH on which dpkg-query, apt-get, id and sudo
# are replaced, so that nothing is installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# fresh: a new checkout with all Debian packages present
fresh() {
  rm -rf "${work:?}"/*
  mkdir -p "$work/checkout/scripts/packages" "$work/bin"
  cp "$here/scripts/setup" "$work/checkout/scripts/"
  cp "$here"/scripts/packages/{debian,python}.txt "$work/checkout/scripts/packages/"
  local tool
  for tool in bash cat comm cp cut dirname env flock grep mkdir python3 rm sed \
    sha256sum sort tail touch wc; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
  done
  stub dpkg-query 'shift 3; printf "ii  %s\n" "$@"'
  stub apt-get 'echo "E: Unable to fetch some archives"; exit 100'
  stub id 'echo 1000'
}

stub() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# expect NAME EXIT_CODE LAST_LINE [VARIABLE=VALUE...]: runs setup and compares.
expect() {
  local name=$1 want_code=$2 want=$3 code=0 got
  shift 3
  got=$(env PATH="$work/bin" "$@" "$work/checkout/scripts/setup" 2>&1) || code=$?
  got=$(tail -n 1 <<<"$got")
  if [[ $code != "$want_code" || $got != "$want" ]]; then
    printf 'FAILED: %s\n  want (%s): %s\n  got  (%s): %s\n' \
      "$name" "$want_code" "$want" "$code" "$got"
    failures=$((failures + 1))
  fi
}

fresh
stub dpkg-query 'shift 3; printf "ii  %s\n" "$@" | grep -v cmake'
expect "neither root nor sudo" 1 \
  "setup: error: neither root nor sudo; hint: as root, apt-get install cmake"

fresh
stub dpkg-query 'shift 3; printf "ii  %s\n" "$@" | grep -v cmake'
stub id 'echo 0'
expect "no network for apt-get" 1 \
  "setup: error: apt-get update failed: E: Unable to fetch some archives (whole output: build/setup.log)"

fresh
rm "$work/bin/dpkg-query"
expect "not Debian" 1 \
  "setup: error: no apt-get here; hint: install what scripts/packages/debian.txt names by other means, then set REPLICANT_SKIP_SYSTEM_PACKAGES=1"

fresh
expect "no Python" 1 \
  "setup: error: $work/none: no such program; hint: set REPLICANT_PYTHON" \
  REPLICANT_PYTHON="$work/none"

# a Python that makes an environment whose pip finds nothing
fresh
stub fake-python "mkdir -p build/venv/bin; cp '$work/bin/fake-pip' build/venv/bin/python"
stub fake-pip 'echo "ERROR: No matching distribution found for mujoco==3.17.0"; exit 1'
expect "package not to be had" 1 \
  "setup: error: pip install failed: ERROR: No matching distribution found for mujoco==3.17.0 (whole output: build/setup.log)" \
  REPLICANT_PYTHON="$work/bin/fake-python"

# one that works: a second run must not call it again
fresh
stub fake-python "mkdir -p build/venv/bin; cp '$work/bin/fake-pip' build/venv/bin/python"
stub fake-pip 'exit 0'
expect "all there" 0 "setup: complete" REPLICANT_PYTHON="$work/bin/fake-python"
expect "nothing left to do" 0 "setup: complete" REPLICANT_PYTHON="$work/none"

exit $((failures > 0))
