# Enables CUDA when wanted and there. Sets GPULIFT_HAS_CUDA.
set(GPULIFT_HAS_CUDA FALSE)

include(gpulift_architectures)
add_test(NAME test.cmake.architectures
         COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_LIST_DIR}/gpulift_architectures_test.cmake)

# The architectures of all GPUs that are there; empty without one.
function(gpulift_present_architectures result)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader TIMEOUT 20
                  OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE ignored)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch
                  OUTPUT_VARIABLE offered ERROR_QUIET RESULT_VARIABLE ignored)
  gpulift_architectures_of("${capabilities}" "${offered}" present)
  set(${result} "${present}" PARENT_SCOPE)
endfunction()

if(GPULIFT_CUDA STREQUAL "OFF")
  gpulift_note_part("CUDA" "off" "skips every technique that needs a GPU")
  return()
endif()

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER)
  check_language(CUDA)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(GPULIFT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "No CUDA compiler: set CUDACXX to nvcc, or run ./gpulift setup")
  endif()
  gpulift_note_part("CUDA" "not found" "skips every technique that needs a GPU; set CUDACXX, or run ./gpulift setup")
  return()
endif()

if(GPULIFT_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${GPULIFT_ARCHITECTURES})
else()
  gpulift_present_architectures(present)
  if(present)
    set(CMAKE_CUDA_ARCHITECTURES ${present})
  else()
    # Nothing runs here, so each file is compiled once, and not assembled; where a card is, it is configured anew.
    # 90a compiles every path that there is. ci/all_architectures assembles for all.
    set(CMAKE_CUDA_ARCHITECTURES 90a-virtual)
  endif()
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old: 13.0 or later is needed (CUDACXX, or ./gpulift setup)")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # one runtime for our modules and for LibTorch
find_package(CUDAToolkit REQUIRED)
set(GPULIFT_HAS_CUDA TRUE)
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
gpulift_note_part("CUDA" "${CMAKE_CUDA_COMPILER_VERSION}" "architectures ${architectures}")

# nvml.h, for types alone: the library is opened at run time. Toolkits may lack it; then it comes from the Python package.
if(NOT GPULIFT_NVML_INCLUDE)
  gpulift_nvidia_packages(nvidia_packages)
  list(TRANSFORM nvidia_packages APPEND /cu13/include)
  find_path(GPULIFT_NVML_INCLUDE nvml.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${nvidia_packages})
endif()
if(GPULIFT_NVML_INCLUDE)
  gpulift_note_part("NVML" "header found" "telemetry where the driver is")
else()
  gpulift_note_part("NVML" "no nvml.h" "no clocks, power or throttle reasons in records; ./gpulift setup")
endif()

if(TARGET CUDA::cupti)
  gpulift_note_part("CUPTI" "found" "launches of a training step are counted")
else()
  gpulift_note_part("CUPTI" "not found" "no launches of a training step in records; ./gpulift setup")
endif()
