#!/usr/bin/env bash
# CMake 3.25.1: find_path() with NO_CACHE and PATH_SUFFIXES leaves a slash at the
# end of its result; without NO_CACHE there is none.
#
# Behaviour: a cache entry of type PATH is normalised as it is stored, and NO_CACHE
# skips that. The two results differ as text, and cmake_path(GET ... PARENT_PATH),
# which takes what follows the last slash for a name, returns the folder itself
# instead of its parent: a library beside the headers is then not found. A find
# module that gains NO_CACHE breaks without an error at that line.
#
# Output seen (Debian 12):
#   cmake 3.25.1
#   cached:   ROOT/include, parent ROOT
#   NO_CACHE: ROOT/include/, parent ROOT/include
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/include"
touch "$folder/include/a.h"
cat >"$folder/find.cmake" <<'CMAKE'
cmake_policy(VERSION 3.25)
find_path(cached a.h HINTS "${root}" PATH_SUFFIXES include)
find_path(uncached a.h HINTS "${root}" PATH_SUFFIXES include NO_CACHE)
cmake_path(GET cached PARENT_PATH cached_parent)
cmake_path(GET uncached PARENT_PATH uncached_parent)
message("cmake ${CMAKE_VERSION}")
message("cached:   ${cached}, parent ${cached_parent}")
message("NO_CACHE: ${uncached}, parent ${uncached_parent}")
CMAKE
output=$(cmake "-Droot=$folder" -P "$folder/find.cmake" 2>&1 | sed "s#$folder#ROOT#g")
echo "$output"
[[ $output == *"cached:   ROOT/include, parent ROOT"$'\n'"NO_CACHE: ROOT/include/, parent ROOT/include" ]]
