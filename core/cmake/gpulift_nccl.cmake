# gpulift::nccl: NCCL out of the Python package nvidia.nccl, which comes with torch, or of the system. Sets
# GPULIFT_HAS_NCCL. Modules that use it are linked with it, the host program is not.
set(GPULIFT_NCCL AUTO CACHE STRING "Build what needs NCCL: AUTO (if it is there), ON, OFF")
set(GPULIFT_HAS_NCCL FALSE)
if(GPULIFT_NCCL STREQUAL "OFF")
  gpulift_note_part("NCCL" "off" "skips techniques that need it: GPULIFT_NCCL=AUTO")
  return()
endif()

gpulift_find_packaged(nccl nccl.h libnccl.so.2)
if(NOT GPULIFT_HAS_CUDA OR NOT nccl_include OR NOT nccl_library)
  if(GPULIFT_NCCL STREQUAL "ON")
    message(FATAL_ERROR "No nccl.h and libnccl.so.2 in ${GPULIFT_PYTHON_EXECUTABLE} or the system: install NCCL, name "
                        "another Python in GPULIFT_PYTHON, or run ./gpulift setup")
  endif()
  gpulift_note_part("NCCL" "not found" "skips techniques that need it: ./gpulift setup, or GPULIFT_PYTHON")
  return()
endif()

gpulift_add_packaged(nccl "NCCL" nccl.h "^#define NCCL_(MAJOR|MINOR|PATCH) ")
set(GPULIFT_HAS_NCCL TRUE)
