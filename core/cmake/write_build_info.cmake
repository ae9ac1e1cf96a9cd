# Writes the build's facts to OUTPUT, only if they changed. Run at every build, since a commit changes them.
set(commit "${COMMIT}")
set(dirty false)
if(NOT commit)
  execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=10 HEAD
                  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND git -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(changes)
    set(dirty true)
  endif()
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
// Generated at build time.
#include "core/host/build_info.hpp"

namespace gpulift {

nlohmann::ordered_json build_facts() {
  return {{"compiler", "@COMPILER@"}, {"cuda_compiler", "@CUDA_COMPILER@"}, {"type", "@TYPE@"},
          {"architectures", "@ARCHITECTURES@"}, {"sanitizers", "@SANITIZERS@"}, {"commit", "@commit@"}, {"dirty", @dirty@}};
}

}  // namespace gpulift
]=])
