#!/usr/bin/env bash
# scripts/setup installs the packages of the purposes that it is given, says in one
# clear line what it lacks, and exits non-zero.
#
# A copy of the scripts runs on a PATH on which dpkg-query, apt-get, id and sudo
# are replaced, so that nothing is installed.
#
# shellcheck disable=SC2016  # the replaced programs expand what they are made of
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# fresh: a new checkout with all of the system's packages present
fresh() {
  rm -rf "${work:?}"/*
  mkdir -p "$work/checkout/scripts" "$work/bin"
  cp "$here/scripts/setup" "$work/checkout/scripts/"
  cp -r "$here"/scripts/packages "$work/checkout/scripts/"
  local tool
  for tool in awk bash cat cmp cp cut dirname env flock grep head mkdir python3 rm sed \
    sort tail touch wc; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
  done
  for tool in c++ cmake ninja; do stub "$tool" 'exit 0'; done
  stub dpkg-query 'shift 3; printf "ii %s " "$@"'
  stub apt-get 'echo "$*" >>"'"$work"'/apt-get"; echo "E: Unable to fetch some archives"; exit 100'
  stub id 'echo 1000'
}

stub() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# a Python that makes an environment whose pip runs COMMAND
python_with_pip() {
  stub fake-python 'if [[ $1 == -m ]]; then mkdir -p build/venv/bin; cp "'"$work"'/bin/fake-pip" build/venv/bin/python; fi'
  stub fake-pip "$1"
}

# expect NAME EXIT_CODE LAST_LINE [VARIABLE=VALUE...] [-- ARGUMENT...]: runs setup
# and compares.
expect() {
  local name=$1 want_code=$2 want=$3 code=0 got settings=()
  shift 3
  while (($# > 0)) && [[ $1 != -- ]]; do
    settings+=("$1")
    shift
  done
  got=$(env PATH="$work/bin" REPLICANT_DISTRIBUTION=debian-13 "${settings[@]}" \
    "$work/checkout/scripts/setup" "${@:2}" 2>&1) || code=$?
  got=$(tail -n 1 <<<"$got")
  same "$name" "($want_code): $want" "($code): $got"
}

# same NAME WANT GOT
same() {
  if [[ $2 == "$3" ]]; then return; fi
  printf 'FAILED: %s\n  want %s\n  got  %s\n' "$@"
  failures=$((failures + 1))
}

fresh
stub dpkg-query 'shift 3; printf "ii %s " "${@/#cmake/other}"'
expect "neither root nor sudo" 1 \
  "setup: error: neither root nor sudo; hint: as root, apt-get install cmake"

fresh
stub dpkg-query 'shift 3; printf "ii %s " "${@/#cmake/other}"'
stub id 'echo 0'
expect "an archive that lacks a package" 1 \
  "setup: error: apt-get update failed: E: Unable to fetch some archives (whole output: build/setup.log)"

# without a network apt-get update succeeds, and apt-get install then says that
# there is no such package
fresh
stub dpkg-query 'exit 1'
stub id 'echo 0'
stub apt-get 'if [[ $* == *update ]]; then echo "  Temporary failure resolving '\''deb.debian.org'\''"; exit 0; fi
echo "E: Unable to locate package cmake"; exit 100'
expect "no network for apt-get" 1 \
  "setup: error: apt-get install failed: E: Unable to locate package cmake; no network: Temporary failure resolving 'deb.debian.org' (whole output: build/setup.log)"

fresh
rm "$work/bin/dpkg-query"
expect "no apt-get" 1 \
  "setup: error: no apt-get here; hint: install what scripts/packages/system.txt names by other means, then set REPLICANT_SKIP_SYSTEM_PACKAGES=1"

fresh
expect "a distribution without a list of packages" 1 \
  "setup: error: fedora-43 is not supported; supported: debian-12, debian-13, ubuntu-24.04, ubuntu-26.04; hint: set REPLICANT_DISTRIBUTION to the one that is closest, or install what scripts/packages/system.txt names by other means and set REPLICANT_SKIP_SYSTEM_PACKAGES=1" \
  REPLICANT_DISTRIBUTION=fedora-43

fresh
expect "an unknown purpose" 1 \
  "setup: error: 'tests' is no purpose; purposes: build, run, check" -- tests

fresh
rm "$work/bin/c++"
expect "no compiler" 1 \
  "setup: error: no C++ compiler: c++ was not found; hint: install g++ 12 or later, or name a compiler in CXX" \
  REPLICANT_SKIP_SYSTEM_PACKAGES=1 REPLICANT_DISTRIBUTION=fedora-43
expect "another compiler that is missing" 1 \
  "setup: error: no C++ compiler: clang++-99 was not found; hint: install g++ 12 or later, or name a compiler in CXX" \
  CXX="clang++-99 -stdlib=libc++"

fresh
rm "$work/bin/ninja"
expect "no ninja" 1 "setup: error: ninja was not found; hint: install it"

fresh
expect "no Python" 1 \
  "setup: error: $work/none: no such program; hint: set REPLICANT_PYTHON" \
  REPLICANT_PYTHON="$work/none"

fresh
stub old-python 'if [[ $1 == --version ]]; then echo "Python 3.9.2"; else exit 1; fi'
expect "an old Python" 1 \
  "setup: error: $work/bin/old-python is Python 3.9.2; 3.11 or later is needed; hint: set REPLICANT_PYTHON" \
  REPLICANT_PYTHON="$work/bin/old-python"

fresh
python_with_pip 'echo "ERROR: No matching distribution found for mujoco==3.17.0"; exit 1'
expect "a Python package that does not exist" 1 \
  "setup: error: pip install failed: ERROR: No matching distribution found for mujoco==3.17.0 (whole output: build/setup.log)" \
  REPLICANT_PYTHON="$work/bin/fake-python"

fresh
python_with_pip "echo \"WARNING: Retrying after connection broken by 'NewConnectionError('<HTTPSConnection>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/mujoco/\"
echo 'ERROR: No matching distribution found for mujoco==3.17.0'; exit 1"
expect "no network for pip" 1 \
  "setup: error: pip install failed: ERROR: No matching distribution found for mujoco==3.17.0; no network: Temporary failure in name resolution (whole output: build/setup.log)" \
  REPLICANT_PYTHON="$work/bin/fake-python"

# a second run calls no Python, a further purpose does
fresh
python_with_pip 'exit 0'
expect "all there" 0 "setup: complete: build" REPLICANT_PYTHON="$work/bin/fake-python" -- build
rm "$work/bin/fake-python"
expect "nothing left to do" 0 "setup: complete: build" -- build
stub fake-pip 'echo "$*" >>"'"$work"'/pip"'
cp "$work/bin/fake-pip" "$work/checkout/build/venv/bin/python"
expect "a further purpose" 0 "setup: complete: build run" -- build run
same "only the list of the further purpose is installed" \
  "-m pip install --no-deps --no-compile --disable-pip-version-check --requirement=scripts/packages/python_run.txt" \
  "$(tail -n 1 "$work/pip")"

# what builds and trains needs neither clang nor what tests need
for distribution in debian-12 debian-13 ubuntu-24.04 ubuntu-26.04; do
  lists=$(REPLICANT_DISTRIBUTION=$distribution "$here/scripts/setup" --list build run)
  same "no compiler or library of the tests on $distribution" "" \
    "$(grep -E 'clang|gtest|gmock|shellcheck|openmpi' <<<"$lists" || true)"
  same "no package twice on $distribution" "" \
    "$(REPLICANT_DISTRIBUTION=$distribution "$here/scripts/setup" --list | uniq -d)"
done

exit $((failures > 0))
