# The ABI tag: a hash of what a module and the host program must agree on. A module with another tag is refused.
file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/cuda/*.hpp
     ${CMAKE_SOURCE_DIR}/core/harness/technique.hpp ${CMAKE_SOURCE_DIR}/core/harness/module.hpp)
set(contents "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${GPULIFT_SANITIZE}")
foreach(header IN LISTS headers)
  file(SHA256 ${header} hash)
  string(APPEND contents ${hash})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()
string(SHA256 GPULIFT_ABI_TAG "${contents}")
string(SUBSTRING ${GPULIFT_ABI_TAG} 0 16 GPULIFT_ABI_TAG)
configure_file(${CMAKE_SOURCE_DIR}/core/cmake/abi_tag.hpp.in ${CMAKE_BINARY_DIR}/generated/core/harness/abi_tag.hpp @ONLY)
