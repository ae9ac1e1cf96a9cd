# gpulift::cusparselt: cuSPARSELt out of the Python package nvidia.cusparselt, which comes with torch, or of the system.
# Sets GPULIFT_HAS_CUSPARSELT.
set(GPULIFT_CUSPARSELT AUTO CACHE STRING "Build what needs cuSPARSELt: AUTO (if it is there), ON, OFF")
set(GPULIFT_HAS_CUSPARSELT FALSE)
if(GPULIFT_CUSPARSELT STREQUAL "OFF")
  gpulift_note_part("cuSPARSELt" "off" "skips techniques that need it: GPULIFT_CUSPARSELT=AUTO")
  return()
endif()

# Looked for at every configuration, since another Python may be named.
set(cusparselt_packages "")
execute_process(
  COMMAND ${GPULIFT_PYTHON_EXECUTABLE} -c
    "import importlib.util as u; print(';'.join(u.find_spec('nvidia').submodule_search_locations), end='')"
  OUTPUT_VARIABLE cusparselt_packages ERROR_QUIET)
list(TRANSFORM cusparselt_packages APPEND /cusparselt)
find_path(cusparselt_include cusparseLt.h HINTS ${cusparselt_packages} PATH_SUFFIXES include NO_CACHE)
# First beside the header: two releases must not be mixed. Packages have no libcusparseLt.so.
find_library(cusparselt_library NAMES libcusparseLt.so.0 HINTS ${cusparselt_include}/../lib NO_CACHE)
# Its header needs cusparse.h.
find_path(cusparse_include cusparse.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
if(NOT GPULIFT_HAS_CUDA OR NOT cusparselt_include OR NOT cusparselt_library OR NOT cusparse_include)
  if(GPULIFT_CUSPARSELT STREQUAL "ON")
    message(FATAL_ERROR "No cusparseLt.h and libcusparseLt.so.0 in ${GPULIFT_PYTHON_EXECUTABLE} or the system: install "
                        "cuSPARSELt, name another Python in GPULIFT_PYTHON, or run ./gpulift setup")
  endif()
  gpulift_note_part("cuSPARSELt" "not found" "skips techniques that need it: ./gpulift setup, or GPULIFT_PYTHON")
  return()
endif()

add_library(gpulift_cusparselt INTERFACE)
add_library(gpulift::cusparselt ALIAS gpulift_cusparselt)
cmake_path(NORMAL_PATH cusparselt_library)
cmake_path(GET cusparselt_library PARENT_PATH cusparselt_folder)
target_include_directories(gpulift_cusparselt SYSTEM INTERFACE ${cusparselt_include} ${cusparse_include})
target_link_options(gpulift_cusparselt INTERFACE "LINKER:-rpath,${cusparselt_folder}")
target_link_libraries(gpulift_cusparselt INTERFACE ${cusparselt_library} CUDA::cudart)
set(GPULIFT_HAS_CUSPARSELT TRUE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cusparselt_include}/cusparseLt.h)
file(STRINGS ${cusparselt_include}/cusparseLt.h cusparselt_version REGEX "^#define CUSPARSELT_VER_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM cusparselt_version REPLACE "[^0-9]+" "")
list(JOIN cusparselt_version "." cusparselt_version)
gpulift_note_part("cuSPARSELt" "${cusparselt_version}" "from ${cusparselt_folder}")
