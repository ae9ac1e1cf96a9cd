# gpulift::nccl: NCCL out of the Python package nvidia.nccl, which comes with torch, or of the system. Sets
# GPULIFT_HAS_NCCL. Modules that use it are linked with it, the host program is not.
set(GPULIFT_NCCL AUTO CACHE STRING "Build what needs NCCL: AUTO (if it is there), ON, OFF")
set(GPULIFT_HAS_NCCL FALSE)
if(GPULIFT_NCCL STREQUAL "OFF")
  gpulift_note_part("NCCL" "off" "skips techniques that need it: GPULIFT_NCCL=AUTO")
  return()
endif()

# Looked for at every configuration, since another Python may be named.
set(nccl_packages "")
execute_process(
  COMMAND ${GPULIFT_PYTHON_EXECUTABLE} -c
    "import importlib.util as u; print(';'.join(u.find_spec('nvidia').submodule_search_locations), end='')"
  OUTPUT_VARIABLE nccl_packages ERROR_QUIET)
list(TRANSFORM nccl_packages APPEND /nccl)
find_path(nccl_include nccl.h HINTS ${nccl_packages} PATH_SUFFIXES include NO_CACHE)
# First beside the header: two releases of NCCL must not be mixed. Packages have no libnccl.so.
find_library(nccl_library NAMES libnccl.so.2 HINTS ${nccl_include}/../lib NO_CACHE)
if(NOT GPULIFT_HAS_CUDA OR NOT nccl_include OR NOT nccl_library)
  if(GPULIFT_NCCL STREQUAL "ON")
    message(FATAL_ERROR "No nccl.h and libnccl.so.2 in ${GPULIFT_PYTHON_EXECUTABLE} or the system: install NCCL, name "
                        "another Python in GPULIFT_PYTHON, or run ./gpulift setup")
  endif()
  gpulift_note_part("NCCL" "not found" "skips techniques that need it: ./gpulift setup, or GPULIFT_PYTHON")
  return()
endif()

add_library(gpulift_nccl INTERFACE)
add_library(gpulift::nccl ALIAS gpulift_nccl)
cmake_path(NORMAL_PATH nccl_library)
cmake_path(GET nccl_library PARENT_PATH nccl_folder)
target_include_directories(gpulift_nccl SYSTEM INTERFACE ${nccl_include})
target_link_options(gpulift_nccl INTERFACE "LINKER:-rpath,${nccl_folder}")
target_link_libraries(gpulift_nccl INTERFACE ${nccl_library} CUDA::cudart)
set(GPULIFT_HAS_NCCL TRUE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${nccl_include}/nccl.h)
file(STRINGS ${nccl_include}/nccl.h nccl_version REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM nccl_version REPLACE "[^0-9]+" "")
list(JOIN nccl_version "." nccl_version)
gpulift_note_part("NCCL" "${nccl_version}" "from ${nccl_folder}")
