# Writes OUTPUT, a header with the commit of the build; cmake -P runs it at every
# build. The file keeps its modification time if nothing has changed.
#
#   cmake -DSOURCE=... -DOUTPUT=... -P ReplicantVersion.cmake
cmake_minimum_required(VERSION 3.25)
set(git "")
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE failed)
if(NOT failed)
  set(git "${commit}")
  execute_process(COMMAND git -C "${SOURCE}" diff --quiet HEAD
    ERROR_QUIET RESULT_VARIABLE has_changes)
  if(has_changes)
    string(APPEND git "+changes")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once\n#define REPLICANT_GIT \"@git@\"\n" @ONLY)
