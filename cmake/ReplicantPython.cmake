# What REPLICANT_PYTHON needs: Python, nanobind, and code that may stand in a
# shared library. Under pip, MuJoCo, oneDNN and the Control Suite's models come
# from the packages of its build environment.
if(REPLICANT_PYTHON)
  find_package(Python 3.11 REQUIRED
    COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
  find_package(nanobind CONFIG REQUIRED)

  set(CMAKE_POSITION_INDEPENDENT_CODE ON)

  if(SKBUILD AND NOT EXISTS "${REPLICANT_VENV}/bin/python")
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
        "import importlib.util as u; print(u.find_spec('mujoco').submodule_search_locations[0])"
      OUTPUT_VARIABLE mujoco OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    # PREFIX/lib/python3.x/site-packages/mujoco
    cmake_path(SET REPLICANT_VENV NORMALIZE "${mujoco}/../../../..")
    set(REPLICANT_VENV "${REPLICANT_VENV}" CACHE PATH "" FORCE)
  endif()
endif()

if(CMAKE_POSITION_INDEPENDENT_CODE)
  # no symbol of a module is replaced at run time: functions may be inlined
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endif()

# replicant_python_module(<name> SOURCES ... DEPS ...)
# The module replicant.<name>, with the libraries inside but MuJoCo and oneDNN,
# which python/replicant/_libraries.py loads from their packages. MuJoCo's
# functions are bound when they are first called, so that a module works without
# MuJoCo until it needs one.
function(replicant_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPS")
  nanobind_add_module(${name} STABLE_ABI NB_STATIC NB_DOMAIN replicant ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  # our warnings are not for its headers
  target_include_directories(${name} SYSTEM BEFORE PRIVATE "${NB_DIR}/include")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} replicant_flags)
  # symbols of the libraries inside stay inside
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,lazy)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "" BUILD_WITH_INSTALL_RPATH ON
    REPLICANT_LOADS_MUJOCO ON)
  install(TARGETS ${name} LIBRARY DESTINATION replicant COMPONENT python)
endfunction()
