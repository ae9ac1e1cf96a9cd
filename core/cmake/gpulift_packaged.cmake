# Libraries of NVIDIA's that come as Python packages, as with torch: nvidia.nccl and others.

# The folders of the package `nvidia`; empty where there is none. Asked at every configuration, since another Python may
# be named.
function(gpulift_nvidia_packages result)
  set(folders "")
  execute_process(
    COMMAND ${GPULIFT_PYTHON_EXECUTABLE} -c
      "import importlib.util as u; print(';'.join(u.find_spec('nvidia').submodule_search_locations), end='')"
    OUTPUT_VARIABLE folders ERROR_QUIET)
  set(${result} "${folders}" PARENT_SCOPE)
endfunction()

# Header and library of nvidia.<name>, or else of the system: sets <name>_include and <name>_library, each false where it
# is not there.
function(gpulift_find_packaged name header library)
  gpulift_nvidia_packages(packages)
  list(TRANSFORM packages APPEND /${name})
  set(include include-NOTFOUND)  # whatever a caller has of these names
  set(found found-NOTFOUND)
  find_path(include ${header} HINTS ${packages} PATH_SUFFIXES include NO_CACHE)
  # First beside the header: two releases must not be mixed. Packages have no library whose name lacks a version.
  find_library(found NAMES ${library} HINTS ${include}/../lib NO_CACHE)
  set(${name}_include "${include}" PARENT_SCOPE)
  set(${name}_library "${found}" PARENT_SCOPE)
endfunction()

# gpulift::<name>, which links what was found. Its version is that of three definitions in a header, which the regular
# expression matches. Notes the part by its title.
function(gpulift_add_packaged name title header version_definitions)
  add_library(gpulift_${name} INTERFACE)
  add_library(gpulift::${name} ALIAS gpulift_${name})
  set(library ${${name}_library})
  set(include ${${name}_include})
  cmake_path(NORMAL_PATH library)
  cmake_path(GET library PARENT_PATH folder)
  target_include_directories(gpulift_${name} SYSTEM INTERFACE ${include})
  target_link_options(gpulift_${name} INTERFACE "LINKER:-rpath,${folder}")
  target_link_libraries(gpulift_${name} INTERFACE ${library} CUDA::cudart)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${include}/${header})
  file(STRINGS ${include}/${header} version REGEX "${version_definitions}")
  list(TRANSFORM version REPLACE "[^0-9]+" "")
  list(JOIN version "." version)
  gpulift_note_part("${title}" "${version}" "from ${folder}")
endfunction()
