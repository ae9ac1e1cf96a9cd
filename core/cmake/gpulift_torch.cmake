# gpulift::torch: LibTorch out of the Python package. An imported target of our own: find_package(Torch) rewrites CUDA
# flags and adds architectures that newer compilers refuse. Sets GPULIFT_HAS_TORCH. Only .cpp files see its headers.
set(GPULIFT_HAS_TORCH FALSE)
if(GPULIFT_TORCH STREQUAL "OFF")
  gpulift_note_part("LibTorch" "off" "skips techniques that need it; GPULIFT_TORCH=AUTO")
  return()
endif()

# The folder is asked for without importing torch, which would take seconds.
execute_process(
  COMMAND ${GPULIFT_PYTHON_EXECUTABLE} -c
    "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('torch').origin).parent, end='')"
  OUTPUT_VARIABLE torch_folder ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT GPULIFT_HAS_CUDA OR NOT EXISTS "${torch_folder}/lib/libtorch_cuda.so")
  if(GPULIFT_TORCH STREQUAL "ON")
    message(FATAL_ERROR "No CUDA build of torch in ${GPULIFT_PYTHON_EXECUTABLE}: name another Python in GPULIFT_PYTHON, or run ./gpulift setup")
  endif()
  gpulift_note_part("LibTorch" "not found" "skips techniques that need it; ./gpulift setup, or GPULIFT_PYTHON")
  return()
endif()

add_library(gpulift_torch INTERFACE)
add_library(gpulift::torch ALIAS gpulift_torch)
target_include_directories(gpulift_torch SYSTEM INTERFACE
  ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
# GCC 13 sees writes beyond std::vector<bool> in its headers, which are none.
target_compile_options(gpulift_torch INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>)
target_link_directories(gpulift_torch INTERFACE ${torch_folder}/lib)
target_link_options(gpulift_torch INTERFACE "LINKER:--no-as-needed" "LINKER:-rpath,${torch_folder}/lib")
target_link_libraries(gpulift_torch INTERFACE torch torch_cpu torch_cuda c10 c10_cuda CUDA::cudart)
set(GPULIFT_HAS_TORCH TRUE)
set(GPULIFT_TORCH_VERSION_FILE "${torch_folder}/version.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GPULIFT_TORCH_VERSION_FILE})
file(STRINGS ${GPULIFT_TORCH_VERSION_FILE} torch_version REGEX "^__version__")
string(REGEX REPLACE ".*'(.*)'.*" "\\1" torch_version "${torch_version}")
gpulift_note_part("LibTorch" "${torch_version}" "from the Python package")

# Compiles a target with LibTorch's headers as workloads/torch/ precompiled them: -fPIC, since GCC refuses them where a
# program's -fPIE differs from that.
function(gpulift_use_torch_headers target)
  target_precompile_headers(${target} REUSE_FROM gpulift_torch_headers)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
endfunction()
