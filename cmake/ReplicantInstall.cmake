# Installs the libraries with their headers and the programs, so that a project of
# a user's finds them by find_package(Replicant).
include(GNUInstallDirs)
set(REPLICANT_INSTALL_HEADERS "${CMAKE_INSTALL_INCLUDEDIR}/replicant")
set(REPLICANT_INSTALL_CMAKE "${CMAKE_INSTALL_LIBDIR}/cmake/Replicant")

# replicant_install_target(<name>): installs a library as replicant::<name>.
function(replicant_install_target name)
  if(REPLICANT_INSTALL_TARGETS)
    install(TARGETS ${name} EXPORT ReplicantTargets
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/replicant")
  endif()
endfunction()

# replicant_install_package(<folder>...): the headers of these folders, and what
# find_package(Replicant) reads. Called once, after all targets.
function(replicant_install_package)
  if(NOT REPLICANT_INSTALL)
    return()
  endif()
  install(DIRECTORY ${ARGN} DESTINATION "${REPLICANT_INSTALL_HEADERS}"
    FILES_MATCHING PATTERN "*.h")
  install(EXPORT ReplicantTargets NAMESPACE replicant::
    DESTINATION "${REPLICANT_INSTALL_CMAKE}")
  include(CMakePackageConfigHelpers)
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/ReplicantConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/ReplicantConfig.cmake"
    INSTALL_DESTINATION "${REPLICANT_INSTALL_CMAKE}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/ReplicantConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES
    "${PROJECT_BINARY_DIR}/ReplicantConfig.cmake"
    "${PROJECT_BINARY_DIR}/ReplicantConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/ReplicantDependencies.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/ReplicantRoot.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindLZ4.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindMuJoCo.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindStb.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindZeroMQ.cmake"
    DESTINATION "${REPLICANT_INSTALL_CMAKE}")
endfunction()
