# gpulift::cudnn: cuDNN out of the Python package nvidia.cudnn, which comes with torch, or of the system, and NVIDIA's
# header-only frontend to it, a Python package too. Sets GPULIFT_HAS_CUDNN. Modules that use them are linked with cuDNN,
# the host program is not.
set(GPULIFT_CUDNN AUTO CACHE STRING "Build what needs cuDNN: AUTO (if it and its frontend are there), ON, OFF")
set(GPULIFT_HAS_CUDNN FALSE)
if(GPULIFT_CUDNN STREQUAL "OFF")
  gpulift_note_part("cuDNN" "off" "skips techniques that need it: GPULIFT_CUDNN=AUTO")
  return()
endif()

gpulift_find_packaged(cudnn cudnn_version.h libcudnn.so.9)
# The frontend's headers lie in the folder of packages itself.
set(python_folders "")
execute_process(
  COMMAND ${GPULIFT_PYTHON_EXECUTABLE} -c "import sys; print(';'.join(filter(None, sys.path)), end='')"
  OUTPUT_VARIABLE python_folders ERROR_QUIET)
find_path(cudnn_frontend cudnn_frontend_version.h HINTS ${python_folders} PATH_SUFFIXES include NO_CACHE)
set(frontend_state "no cudnn_frontend.h")
set(frontend_suits FALSE)
if(cudnn_frontend)
  file(STRINGS ${cudnn_frontend}/cudnn_frontend_version.h frontend_version REGEX "^#define CUDNN_FRONTEND_M[A-Z]+_VERSION ")
  list(TRANSFORM frontend_version REPLACE "[^0-9]+" "")
  list(JOIN frontend_version "." frontend_version)
  set(frontend_state "frontend ${frontend_version}, not 1.18")
  # Later ones have kernels of their own, which do not link without a driver; earlier ones were not tried.
  if(frontend_version VERSION_EQUAL 1.18)
    set(frontend_suits TRUE)
  endif()
endif()
if(NOT GPULIFT_HAS_CUDA OR NOT cudnn_include OR NOT cudnn_library OR NOT frontend_suits)
  if(GPULIFT_CUDNN STREQUAL "ON")
    message(FATAL_ERROR "No libcudnn.so.9 with its headers, or no frontend 1.18, in ${GPULIFT_PYTHON_EXECUTABLE} or the "
                        "system: install nvidia-cudnn-cu13 and nvidia-cudnn-frontend==1.18.0, name another Python in "
                        "GPULIFT_PYTHON, or run ./gpulift setup")
  endif()
  set(state "not found")
  if(cudnn_include AND cudnn_library AND NOT frontend_suits)
    set(state "${frontend_state}")
  endif()
  gpulift_note_part("cuDNN" "${state}" "skips techniques that need it: ./gpulift setup, or GPULIFT_PYTHON")
  return()
endif()

gpulift_add_packaged(cudnn "cuDNN" cudnn_version.h "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
target_include_directories(gpulift_cudnn SYSTEM INTERFACE ${cudnn_frontend})
target_compile_definitions(gpulift_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)  # which would double compile time
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cudnn_frontend}/cudnn_frontend_version.h)
set(GPULIFT_HAS_CUDNN TRUE)
