#pragma once

#include <string>

namespace gpulift {

/// The allocator behind malloc() in this process, told by a function that only it exports: "jemalloc", "tcmalloc",
/// "mimalloc", "AddressSanitizer", "ThreadSanitizer", or "libc" when there is none of these.
std::string allocator_in_use();

}  // namespace gpulift
