# gpulift::options: warnings, standard and sanitizers for our own targets.
add_library(gpulift_options INTERFACE)
add_library(gpulift::options ALIAS gpulift_options)
target_compile_features(gpulift_options INTERFACE cxx_std_20)
# -Wrestrict reads string appends wrongly in GCC 12 (GCC bug 105651).
target_compile_options(gpulift_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wno-restrict>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(GPULIFT_SANITIZE)
  target_compile_options(gpulift_options INTERFACE -fsanitize=${GPULIFT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gpulift_options INTERFACE -fsanitize=${GPULIFT_SANITIZE})
endif()
target_include_directories(gpulift_options INTERFACE ${CMAKE_SOURCE_DIR})

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)

# Compilers and linkers read these, besides their command line. What they are in the first configure of a folder holds for
# all of its builds, as it does for CXXFLAGS, so that no folder holds objects of several kinds; records tell it.
set(read_by_compilers NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS NVCC_CCBIN CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH
    COMPILER_PATH GCC_EXEC_PREFIX CCC_OVERRIDE_OPTIONS LD_RUN_PATH)
set(found "")
foreach(variable IN LISTS read_by_compilers)
  if(NOT "$ENV{${variable}}" STREQUAL "")
    string(REGEX REPLACE "[\n;]" " " value "$ENV{${variable}}")
    list(APPEND found "${variable}=${value}")
  endif()
endforeach()
set(GPULIFT_BUILD_ENVIRONMENT "${found}" CACHE STRING "What compilers find in their environment: a list of NAME=VALUE")
list(TRANSFORM read_by_compilers PREPEND "--unset=" OUTPUT_VARIABLE launcher)
foreach(setting IN LISTS GPULIFT_BUILD_ENVIRONMENT)
  string(REPLACE "'" "'\\''" setting "${setting}")
  list(APPEND launcher "'${setting}'")
endforeach()
list(JOIN launcher " " launcher)
foreach(rule COMPILE LINK)
  set_property(GLOBAL PROPERTY RULE_LAUNCH_${rule} "'${CMAKE_COMMAND}' -E env ${launcher}")
endforeach()

# What the end of configure prints: one line per optional part.
set_property(GLOBAL PROPERTY gpulift_summary "")
function(gpulift_note_part name state consequence)
  string(REPLACE ";" "\\;" line "${name} | ${state} | ${consequence}")
  set_property(GLOBAL APPEND PROPERTY gpulift_summary "${line}")
endfunction()
function(gpulift_print_summary)
  get_property(lines GLOBAL PROPERTY gpulift_summary)
  foreach(line IN LISTS lines)
    message(STATUS "gpulift: ${line}")
  endforeach()
endfunction()

# A GoogleTest program. GPU: it is run alone, and in one process, since to reach for the GPU and to load LibTorch takes
# longer than most cases do. BY_CASE: each case is a test nevertheless; they depend on what else was built, and are listed
# when ctest starts. TORCH: it includes LibTorch's headers. HOST: it needs neither those nor CUDA, and so is a test of the
# build with sanitizers; others build it when it is asked for by its name.
function(gpulift_add_test name)
  cmake_parse_arguments(arg "GPU;EXCLUSIVE;BY_CASE;TORCH;HOST" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gpulift::options ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  gpulift_compile_as_test(${name} ${arg_TORCH})
  if(arg_HOST AND NOT GPULIFT_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  if(arg_GPU AND NOT arg_BY_CASE)
    add_test(NAME ${name} COMMAND ${name})
    gpulift_set_test_properties(${name} TRUE)
    return()
  endif()
  set(properties TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=2)
  set(mode POST_BUILD)
  if(arg_GPU)
    gpulift_lock_of_gpu(lock)
    set(properties TIMEOUT 900 ENVIRONMENT OMP_NUM_THREADS=2 LABELS gpu ${lock})
    set(mode PRE_TEST)
  elseif(arg_EXCLUSIVE)
    list(APPEND properties RESOURCE_LOCK gpu)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 DISCOVERY_MODE ${mode} PROPERTIES ${properties})
endfunction()

# Tests run once or twice, so the shorter build counts; but LibTorch's headers are precompiled for optimised code alone.
function(gpulift_compile_as_test target with_torch)
  if(with_torch)
    gpulift_use_torch_headers(${target})
  elseif(NOT GPULIFT_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# A test on the GPU is run alone. Many tests at once, each with a thread for every core, would wait for one another.
function(gpulift_set_test_properties test on_gpu)
  set_tests_properties(${test} PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=2)
  if(on_gpu)
    gpulift_lock_of_gpu(lock)
    set_tests_properties(${test} PROPERTIES TIMEOUT 900 LABELS gpu ${lock})
  endif()
endfunction()

# Without a GPU's driver tests need not wait for each other.
function(gpulift_lock_of_gpu result)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS /dev/nvidiactl OR EXISTS /dev/dxg)
    set(${result} RESOURCE_LOCK gpu PARENT_SCOPE)
  endif()
endfunction()
