# gpulift::cusparselt: cuSPARSELt out of the Python package nvidia.cusparselt, which comes with torch, or of the system.
# Sets GPULIFT_HAS_CUSPARSELT.
set(GPULIFT_CUSPARSELT AUTO CACHE STRING "Build what needs cuSPARSELt: AUTO (if it is there), ON, OFF")
set(GPULIFT_HAS_CUSPARSELT FALSE)
if(GPULIFT_CUSPARSELT STREQUAL "OFF")
  gpulift_note_part("cuSPARSELt" "off" "skips techniques that need it: GPULIFT_CUSPARSELT=AUTO")
  return()
endif()

gpulift_find_packaged(cusparselt cusparseLt.h libcusparseLt.so.0)
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

gpulift_add_packaged(cusparselt "cuSPARSELt" cusparseLt.h "^#define CUSPARSELT_VER_(MAJOR|MINOR|PATCH) ")
target_include_directories(gpulift_cusparselt SYSTEM INTERFACE ${cusparse_include})
set(GPULIFT_HAS_CUSPARSELT TRUE)
