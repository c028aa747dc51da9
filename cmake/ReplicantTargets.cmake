include(ReplicantInstall)

# what C++20 of the sources needs; checked here, since an older compiler would end
# in the middle of a build
foreach(minimum "GNU;g++;12" "Clang;clang++;16")
  list(GET minimum 0 id)
  list(GET minimum 1 name)
  list(GET minimum 2 version)
  if(CMAKE_CXX_COMPILER_ID STREQUAL id AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS version)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${name} ${CMAKE_CXX_COMPILER_VERSION}; "
      "${version} or later is needed; hint: name another compiler in CXX, "
      "and remove ${PROJECT_BINARY_DIR}")
  endif()
endforeach()

# a tenth of the time of ld for each of hundreds of tests
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

# Compiler flags of the project's own targets; third-party targets never get them.
add_library(replicant_flags INTERFACE)
if(REPLICANT_INSTALL)
  install(TARGETS replicant_flags EXPORT ReplicantTargets)
endif()
target_compile_features(replicant_flags INTERFACE cxx_std_20)
target_compile_options(replicant_flags INTERFACE
  # one baseline for every file: files of different -march that share inline
  # templates crash on mixed clusters; faster code is dispatched at run time
  $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor>
  # g++ 13 and 14 suspect each function that returns a reference and takes a
  # temporary; g++ 15 no longer has it in -Wall
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>
  # members that a designated initialiser leaves out have their defaults
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${REPLICANT_WARNINGS_AS_ERRORS}>>:-Werror>)
# less to compile; a precompiled header has it, and must be the first
set(fmt_once_header "${PROJECT_SOURCE_DIR}/base/fmt_once.h")
set(is_precompiled "$<BOOL:$<TARGET_PROPERTY:REPLICANT_IS_PRECOMPILED>>")
target_compile_options(replicant_flags INTERFACE
  "$<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${is_precompiled}>>:SHELL:-include ${fmt_once_header}>>")
if(REPLICANT_SANITIZE)
  target_compile_options(replicant_flags INTERFACE
    -fsanitize=${REPLICANT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(replicant_flags INTERFACE -fsanitize=${REPLICANT_SANITIZE})
endif()
# instrumented code, -O1 and -O3 give g++ 12 false positives of these warnings
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(without_false_positives
    -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow)
endif()
if(REPLICANT_SANITIZE OR NOT REPLICANT_WARNINGS_AS_ERRORS)
  target_compile_options(replicant_flags INTERFACE ${without_false_positives})
endif()
if(REPLICANT_FUZZ)
  target_compile_options(replicant_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

set(precompiled_headers "${fmt_once_header}" "${PROJECT_SOURCE_DIR}/base/precompiled.h")
if(REPLICANT_PCH)
  file(CONFIGURE OUTPUT precompiled.cc CONTENT "")
  add_library(replicant_precompiled OBJECT "${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc")
  target_include_directories(replicant_precompiled PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(replicant_precompiled PRIVATE fmt::fmt spdlog::spdlog replicant_flags)
  set_target_properties(replicant_precompiled PROPERTIES REPLICANT_IS_PRECOMPILED ON)
  target_precompile_headers(replicant_precompiled PRIVATE ${precompiled_headers})
endif()

# replicant_precompile(<name> DEP...): with REPLICANT_PCH, a precompiled header.
# Targets of equal flags share one.
function(replicant_precompile name)
  if(NOT REPLICANT_PCH)
    return()
  endif()
  set_target_properties(${name} PROPERTIES REPLICANT_IS_PRECOMPILED ON)
  if("OpenMP::OpenMP_CXX" IN_LIST ARGN)
    target_precompile_headers(${name} PRIVATE ${precompiled_headers})
  else()
    target_precompile_headers(${name} REUSE_FROM replicant_precompiled)
  endif()
endfunction()

# replicant_runs_seldom(<name>): compiles a target whose speed nobody notices
# with -O1, which saves a tenth to a third of the compiler's time.
function(replicant_runs_seldom name)
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  # g++ 13 and later refuse a precompiled header of -O3 where these differ
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${name} PRIVATE
      $<$<CONFIG:Release>:-munroll-only-small-loops;-mvzeroupper>)
  endif()
endfunction()

# replicant_compile_together(<name>): with REPLICANT_UNITY, g++ reads the headers
# once for eight files. A name in an anonymous namespace must then be the only one
# of its library. A file with SKIP_UNITY_BUILD_INCLUSION is compiled alone, and so
# is every file of a target with UNITY_BUILD OFF.
function(replicant_compile_together name)
  if(NOT REPLICANT_UNITY)
    return()
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # the compiler collects garbage less often: 7 % of its time, for 0.7 GB
    target_compile_options(${name} PRIVATE
      --param=ggc-min-expand=200 --param=ggc-min-heapsize=524288
      # takes a .cc that another file includes for a header
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# replicant_library(<name> SOURCES a.cc... [DEPS public...] [PRIVATE_DEPS ...])
# One static library per folder; its DEPS are the arrows of docs/architecture.md.
function(replicant_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS")
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(replicant::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
    "$<INSTALL_INTERFACE:${REPLICANT_INSTALL_HEADERS}>")
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS}
                                PRIVATE replicant_flags ${ARG_PRIVATE_DEPS})
  replicant_precompile(${name} ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
  replicant_compile_together(${name})
  replicant_install_target(${name})
endfunction()

# replicant_interface_library(<name> DEPS ...): several libraries under one name.
function(replicant_interface_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS")
  add_library(${name} INTERFACE)
  add_library(replicant::${name} ALIAS ${name})
  target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  replicant_install_target(${name})
endfunction()

# replicant_program(<name> ...): as replicant_executable, and installed.
function(replicant_program name)
  replicant_executable(${name} ${ARGN})
  if(REPLICANT_INSTALL_TARGETS)
    install(TARGETS ${name}_main RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endfunction()

# replicant_executable(<name> SOURCES a_main.cc... DEPS ...)
# The target is <name>_main, the file bin/<name>.
function(replicant_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPS")
  add_executable(${name}_main ${ARG_SOURCES})
  set_target_properties(${name}_main PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(${name}_main PRIVATE ${ARG_DEPS} replicant_flags)
endfunction()

# Suppressions of sanitizer reports from third-party libraries.
set(replicant_test_environment "")
if(REPLICANT_SANITIZE MATCHES "thread")
  set(replicant_test_environment ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")
elseif(REPLICANT_SANITIZE MATCHES "address")
  set(replicant_test_environment ENVIRONMENT
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp")
endif()

# Half of the compiler's time for a test goes into headers that all tests include:
# they share a precompiled one, which ccache cannot use. Optimisation would take a
# third of the rest.
function(replicant_link_as_test name)
  target_link_libraries(${name} PRIVATE
    ${ARGN} replicant_flags GTest::gmock GTest::gtest_main fmt::fmt spdlog::spdlog)
  set_target_properties(${name} PROPERTIES
    REPLICANT_IS_PRECOMPILED ON CXX_COMPILER_LAUNCHER ""
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_compile_options(${name} PRIVATE -O0 ${without_false_positives})
endfunction()

# replicant_add_test_program(name SOURCES file... DEPS target... DEFINITIONS macro...)
# Builds a test program without adding it to ctest.
function(replicant_add_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPS;DEFINITIONS;PROGRAMS")
  if(NOT TARGET replicant_test_headers)
    file(CONFIGURE OUTPUT test_headers.cc CONTENT "")
    add_executable(replicant_test_headers "${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc")
    replicant_link_as_test(replicant_test_headers)
    target_include_directories(replicant_test_headers PRIVATE "${PROJECT_SOURCE_DIR}")
    target_precompile_headers(replicant_test_headers PRIVATE
      ${precompiled_headers} "${PROJECT_SOURCE_DIR}/tests/support/precompiled.h")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  replicant_link_as_test(${name} ${ARG_DEPS})
  target_precompile_headers(${name} REUSE_FROM replicant_test_headers)
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINITIONS})
  if(ARG_PROGRAMS)
    add_dependencies(${name} ${ARG_PROGRAMS})
  endif()
endfunction()

# The tests with label `sanitized`: what scripts/test builds for sanitizers, too.
add_custom_target(sanitized_tests)

# replicant_test(<file_test.cc> DEPS ...
#                [LABELS unit|parity|golden|integration|cuda|sanitized]
#                [TIMEOUT seconds] [SHARDS number] [FINDS_FILES]
#                [DEFINITIONS macro...] [PROGRAMS target...])
# Each of its tests is one of ctest's. With SHARDS they are divided among so many
# of ctest's: for hundreds of tests that are shorter than the start of a process.
#
# FINDS_FILES defines two macros for the test: REPLICANT_SOURCE_DIR, the root of
# the repository, and REPLICANT_PYTHON, the interpreter of scripts/setup.
# PROGRAMS are targets that the test starts.
#
# TIMEOUT ends a test that hangs. It is many times the duration of the test, since
# machines may be slow and busy.
function(replicant_test source)
  get_filename_component(name ${source} NAME_WE)
  replicant_test_program(${name} SOURCES ${source} ${ARGN})
endfunction()

# replicant_tests(<name> FILES file... DEPS ...)
# Test files that need the same libraries, each with the options of replicant_test.
# FILES are named without _test.cc. With REPLICANT_UNITY they are one program <name>,
# compiled eight files at a time (JoinTests.cmake), and the target of a file builds it.
function(replicant_tests program)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "FINDS_FILES" "TIMEOUT"
    "FILES;DEPS;LABELS;DEFINITIONS;PROGRAMS")
  set(options TIMEOUT ${ARG_TIMEOUT} DEPS ${ARG_DEPS} LABELS ${ARG_LABELS}
    DEFINITIONS ${ARG_DEFINITIONS} PROGRAMS ${ARG_PROGRAMS})
  if(ARG_FINDS_FILES)
    list(APPEND options FINDS_FILES)
  endif()
  list(TRANSFORM ARG_FILES APPEND _test.cc)
  if(NOT REPLICANT_UNITY)
    foreach(file ${ARG_FILES})
      replicant_test(${file} ${options})
    endforeach()
    return()
  endif()
  list(TRANSFORM ARG_FILES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set(files ${ARG_FILES})
  set(joined "")
  while(files)
    list(SUBLIST files 0 8 batch)
    list(REMOVE_ITEM files ${batch})
    list(LENGTH joined number)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/joined/${program}_${number}.cc")
    set(script "${PROJECT_SOURCE_DIR}/cmake/JoinTests.cmake")
    add_custom_command(OUTPUT "${output}"
      COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${output}" -D "FOLDER=${PROJECT_BINARY_DIR}/tests"
              -D PROGRAM=${program} -P "${script}" -- ${batch}
      DEPENDS ${batch} "${script}" COMMENT "" VERBATIM)
    list(APPEND joined "${output}")
  endwhile()
  replicant_test_program(${program} SOURCES ${joined} ${options})
  foreach(file ${ARG_FILES})
    get_filename_component(name ${file} NAME_WE)
    add_custom_target(${name} DEPENDS ${program})
  endforeach()
endfunction()

# replicant_test_program(<name> SOURCES file... <options of replicant_test>)
function(replicant_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "FINDS_FILES" "TIMEOUT;SHARDS"
    "SOURCES;DEPS;LABELS;DEFINITIONS;PROGRAMS")
  if(ARG_FINDS_FILES)
    list(APPEND ARG_DEFINITIONS
      REPLICANT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
      REPLICANT_PYTHON="${REPLICANT_VENV}/bin/python")
  endif()
  replicant_add_test_program(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS}
    DEFINITIONS ${ARG_DEFINITIONS} PROGRAMS ${ARG_PROGRAMS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if("sanitized" IN_LIST ARG_LABELS)
    add_dependencies(sanitized_tests ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(ARG_SHARDS)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.shard-${shard} COMMAND
        ${CMAKE_COMMAND} -E env GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index}
        $<TARGET_FILE:${name}>)
      set_tests_properties(${name}.shard-${shard} PROPERTIES
        LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ${replicant_test_environment})
    endforeach()
    return()
  endif()
  # name a parameterised test by its parameter's name, not by the bytes
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${replicant_test_environment})
  # not among these properties, which take a list of labels apart
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(WRITE "${labels_file}"
    "if(${name}_TESTS)\n"
    "  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABELS}\")\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# replicant_mpi_test(<file_test.cc> RANKS 2 4 ... DEPS ...)
# A test program that mpirun starts on each of these numbers of processes, as one
# ctest each; every process runs all tests of the program. The processes may
# outnumber the processors. Adds nothing unless REPLICANT_TESTS_MPI is set.
function(replicant_mpi_test source)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "RANKS;DEPS")
  if(NOT REPLICANT_TESTS_MPI)
    return()
  endif()
  get_filename_component(name ${source} NAME_WE)
  replicant_add_test_program(${name} SOURCES ${source} DEPS ${ARG_DEPS})
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.ranks-${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} --oversubscribe --allow-run-as-root
              --bind-to none $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks-${ranks} PROPERTIES
      LABELS integration TIMEOUT 600 ${replicant_test_environment})
  endforeach()
endfunction()
