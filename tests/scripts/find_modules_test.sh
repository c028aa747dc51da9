#!/usr/bin/env bash
# cmake/FindMuJoCo.cmake and FindOneDNN.cmake search the folder that a *_ROOT names,
# and no other; a folder that is missing is an error with its name.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# mujoco FOLDER: what FindMuJoCo looks for, in the version 3.17.0
mujoco() {
  mkdir -p "$1/include/mujoco"
  echo '#define mjVERSION_HEADER 3017000' >"$1/include/mujoco/mujoco.h"
  touch "$1/libmujoco.so.3.17.0"
}

# expect NAME WANT PACKAGE ARGUMENT...: what cmake prints, in one line
expect() {
  local name=$1 want=$2 package=$3 got
  shift 3
  printf 'cmake_policy(VERSION 3.25)\nlist(APPEND CMAKE_MODULE_PATH "%s/cmake")\ninclude(ReplicantRoot)\nfind_package(%s REQUIRED)\n' \
    "$here" "$package" >"$work/find.cmake"
  got=$(cmake "-DREPLICANT_VENV=$work/venv" "$@" -P "$work/find.cmake" 2>&1 | tr -s ' \n' ' ' || true)
  if [[ $got != *"$want"* ]]; then
    printf 'FAILED: %s\n  want %s\n  got  %s\n' "$name" "$want" "$got"
    failures=$((failures + 1))
  fi
}

wheel=$work/venv/lib/python3.11/site-packages/mujoco
mujoco "$wheel"
mujoco "$work/root"
mkdir "$work/empty"

expect "the environment's" "Found MuJoCo: $wheel/libmujoco.so.3.17.0" MuJoCo
expect "the root's" "Found MuJoCo: $work/root/libmujoco.so.3.17.0" MuJoCo "-DMuJoCo_ROOT=$work/root"
expect "a root that is missing" "MuJoCo_ROOT: $work/none: no such folder" \
  MuJoCo "-DMuJoCo_ROOT=$work/none"
expect "a root without MuJoCo" \
  "Could NOT find MuJoCo (missing: MuJoCo_LIBRARY MuJoCo_INCLUDE_DIR) Reason given by package: searched: $work/empty" \
  MuJoCo "-DMuJoCo_ROOT=$work/empty"
MuJoCo_ROOT=$work/none expect "a root of the shell" "MuJoCo_ROOT: $work/none: no such folder" MuJoCo
expect "oneDNN's root that is missing" "OneDNN_ROOT: $work/none: no such folder" \
  OneDNN "-DOneDNN_ROOT=$work/none"
expect "oneDNN's root without oneDNN" "searched: $work/empty" OneDNN "-DOneDNN_ROOT=$work/empty"

exit $((failures > 0))
