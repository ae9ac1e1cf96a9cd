# Writes the build's facts to OUTPUT, only if they changed. Run at every build, since a commit changes them.

foreach(name CUDA_HOST_COMPILER LINKER)
  string(STRIP "${${name}}" ${name})
endforeach()
list(JOIN ENVIRONMENT "\n" environment)

# What is set otherwise than in the first configure has no effect; one that expects it should know.
function(say_without_effect variable kept)
  string(FIND "${kept}" "$ENV{${variable}}" place)
  if(place EQUAL -1)
    message(NOTICE "gpulift: ${variable} is not as this build folder was configured with, and has no effect; remove the "
                   "folder to use it")
  endif()
endfunction()
say_without_effect(CXXFLAGS "${FLAGS}")
say_without_effect(CUDAFLAGS "${CUDA_FLAGS}")
say_without_effect(LDFLAGS "${LINK_FLAGS}")
say_without_effect(NVCC_APPEND_FLAGS "${environment}")
say_without_effect(NVCC_PREPEND_FLAGS "${environment}")

# Of our own checkout, whatever git repository lies around it: the one that has this very file at this very place.
function(ask_git result status)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=GIT_DIR --unset=GIT_WORK_TREE --unset=GIT_INDEX_FILE
                          git -C ${SOURCE_DIR} ${ARGN}
                  TIMEOUT 60 RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} "${said}" PARENT_SCOPE)
  set(${status} "${code}" PARENT_SCOPE)
endfunction()

set(own core/cmake/write_build_info.cmake)
set(commit "${COMMIT}")
set(dirty false)
if(NOT commit)
  ask_git(place ignored ls-files --full-name --error-unmatch ${own})
  if(place STREQUAL own)
    ask_git(commit ignored rev-parse --short=10 HEAD)
    ask_git(changes failed status --porcelain --untracked-files=no)
    if(failed)
      set(commit "")  # nobody knows whether that is what was built
    elseif(changes)
      set(dirty true)
    endif()
  endif()
endif()
set(origin "{\"commit\", \"${commit}\"}, {\"dirty\", ${dirty}}")
if(NOT commit)
  set(origin "{\"commit\", \"unknown\"}")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
// Generated at build time.
#include "core/harness/environment.hpp"
#include "core/host/record/build_info.hpp"

namespace gpulift {

nlohmann::ordered_json build_facts() {
  nlohmann::ordered_json facts{
      {"compiler", "@COMPILER@"},
      {"cuda_compiler", "@CUDA_COMPILER@"},
      {"cuda_host_compiler", "@CUDA_HOST_COMPILER@"},
      {"linker", "@LINKER@"},
      {"type", "@TYPE@"},
      {"flags", without_paths(R"flags(@FLAGS@)flags")},
      {"cuda_flags", without_paths(R"flags(@CUDA_FLAGS@)flags")},
      {"link_flags", without_paths(R"flags(@LINK_FLAGS@)flags")},
      {"architectures", "@ARCHITECTURES@"},
      {"sanitizers", "@SANITIZERS@"},
      @origin@};
  auto environment = build_environment(R"flags(@environment@)flags");
  if (!environment.empty()) facts["environment"] = environment;
  return facts;
}

}  // namespace gpulift
]=])
