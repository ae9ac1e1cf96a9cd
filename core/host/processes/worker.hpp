#pragma once
// A child's side of an arm in a process of its own: see group_runner.hpp.

#include <string>

namespace gpulift {

/// Whether a library can be preloaded: 0 if it is in this process, else 1.
int answer_preloaded(const std::string& library);

/// Loads the job's module, checks the arm, and answers until its input closes. Returns its exit code.
int serve_worker();

}  // namespace gpulift
