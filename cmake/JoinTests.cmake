# cmake -D OUTPUT=joined.cc -D FOLDER=tests -D PROGRAM=all_tests -P JoinTests.cmake -- TEST.cc...
# Joins test files into one, which g++ compiles in half of the time of all of
# them: OUTPUT. Their anonymous namespaces would be one; each gets the name of its
# file, so that files may use the same names. For each file FOLDER/NAME runs its
# tests alone, of all in FOLDER/PROGRAM.
set(is_source FALSE)
set(joined "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  set(source "${CMAKE_ARGV${i}}")
  if(is_source)
    get_filename_component(name "${source}" NAME_WE)
    file(READ "${source}" text)
    string(REGEX MATCHALL "\n(TYPED_)?TEST(_F|_P)?\\([A-Za-z0-9_]+" suites "${text}")
    string(REGEX REPLACE "\n[A-Z_]+\\(" "" suites "${suites}")
    list(REMOVE_DUPLICATES suites)
    set(filter "")
    foreach(suite ${suites})
      string(APPEND filter ":${suite}.*:${suite}/*:*/${suite}.*")
    endforeach()
    file(WRITE "${FOLDER}/${name}" "#!/bin/sh\n"
      "exec \"\${0%/*}/${PROGRAM}\" '--gtest_filter=${filter}' \"\$@\"\n")
    file(CHMOD "${FOLDER}/${name}" PERMISSIONS
      OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    string(REGEX REPLACE "\nnamespace {\n" "\nnamespace ${name}_cc {\n" text "${text}")
    string(APPEND joined "#line 1 \"${source}\"\n${text}\n")
  elseif(source STREQUAL "--")
    set(is_source TRUE)
  endif()
endforeach()
file(WRITE "${OUTPUT}" "${joined}")
