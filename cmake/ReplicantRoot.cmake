# replicant_root(<package> <root> <only>)
# Sets <root> to the folder that <package>_ROOT names, as a variable or in the
# environment, and <only> to what keeps find_path() inside it; both are empty if
# it names none. Stops if a folder is missing: CMake would search elsewhere.
function(replicant_root package root only)
  set(folder "${${package}_ROOT}")
  if(NOT folder)
    set(folder "$ENV{${package}_ROOT}")
  endif()
  set(${root} "${folder}" PARENT_SCOPE)
  set(${only} "" PARENT_SCOPE)
  foreach(one IN LISTS folder)
    if(NOT IS_DIRECTORY "${one}")
      message(FATAL_ERROR "${package}_ROOT: ${one}: no such folder")
    endif()
    set(${only} NO_DEFAULT_PATH PARENT_SCOPE)
  endforeach()
endfunction()
