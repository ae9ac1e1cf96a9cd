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
  set_property(GLOBAL PROPERTY RULE_LAUNCH_${rule} "env ${launcher}")
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
# longer than most cases do. BY_CASE <filter>: each case of these suites is a test nevertheless; they depend on what else
# was built, and are listed when ctest starts. What else is in the program needs no GPU, and is one test. TORCH: it
# includes LibTorch's headers. HOST: it is of the engine and needs neither those nor CUDA, and so is a test of the build
# with sanitizers, in one process; others build it when it is asked for by its name. EXCLUSIVE: each case is a test, and
# where there is a GPU two of them never run at once.
function(gpulift_add_test name)
  cmake_parse_arguments(arg "GPU;EXCLUSIVE;TORCH;HOST" "BY_CASE" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gpulift::options ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  gpulift_compile_as_test(${name} ${arg_TORCH})
  if(NOT arg_TORCH AND NOT "gpulift::host_workloads" IN_LIST arg_LIBRARIES)  # which are compiled with OpenMP
    gpulift_use_test_headers(${name})
  endif()
  if(arg_HOST AND NOT GPULIFT_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  if((arg_GPU AND NOT arg_BY_CASE) OR (arg_HOST AND NOT arg_EXCLUSIVE))
    add_test(NAME ${name} COMMAND ${name})
    gpulift_set_test_properties(${name} ${arg_GPU})
    if(arg_HOST)
      set_tests_properties(${name} PROPERTIES LABELS engine)
    endif()
    return()
  endif()
  set(properties TIMEOUT 300 ENVIRONMENT OMP_NUM_THREADS=2)
  set(mode POST_BUILD)
  if(arg_GPU)
    gpulift_lock_of_gpu(lock)
    set(properties TIMEOUT 900 ENVIRONMENT OMP_NUM_THREADS=2 LABELS gpu ${lock})
    set(mode PRE_TEST TEST_FILTER ${arg_BY_CASE})
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=-${arg_BY_CASE})
    gpulift_set_test_properties(${name} FALSE)
  elseif(arg_EXCLUSIVE)
    gpulift_lock_of_gpu(lock)
    list(APPEND properties LABELS engine ${lock})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 DISCOVERY_MODE ${mode} PROPERTIES ${properties})
endfunction()

function(gpulift_use_test_headers target)
  target_precompile_headers(${target} REUSE_FROM gpulift_test_headers)
  target_compile_options(${target} PRIVATE -fPIC)  # as those headers, which are a library's
endfunction()

# The tests of many files on the GPU in one program, which is linked once. Where there is a GPU, those of each file are a
# process: a kernel that fails takes its process's device along. Elsewhere all skip themselves, and are started once.
function(gpulift_add_gpu_tests name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} $<TARGET_OBJECTS:gpulift_tests_of_files> ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gpulift::options ${arg_LIBRARIES} GTest::gmock)
  gpulift_compile_as_test(${name} FALSE)
  gpulift_use_test_headers(${name})
  gpulift_lock_of_gpu(lock)
  if(NOT lock)
    add_test(NAME ${name} COMMAND ${name})
    gpulift_set_test_properties(${name} TRUE)
    return()
  endif()
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE file)
    string(REGEX REPLACE "_test\\.cpp$" "" file ${file})
    string(REPLACE "/" "." test test.${file})
    add_test(NAME ${test} COMMAND ${name} --file=${file})
    gpulift_set_test_properties(${test} TRUE)
  endforeach()
endfunction()

# Tests run once or twice, so the shorter build counts. LibTorch's headers are precompiled for optimised code, which -O1
# is to GCC and -O0 is not.
function(gpulift_compile_as_test target with_torch)
  if(with_torch)
    gpulift_use_torch_headers(${target})
    target_compile_options(${target} PRIVATE -O1)
  else()
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
