#include "launch_counter.hpp"

#include <dlfcn.h>

#include <memory>

#include "core/harness/process.hpp"

namespace gpulift {

std::filesystem::path launch_counter_library() {
  return std::filesystem::path(own_program()).parent_path() / "libgpulift_launch_counter.so";
}

std::optional<std::int64_t> launches_during(const std::filesystem::path& library, const std::function<void()>& work) {
  // It stays loaded: CUPTI knows a function of it.
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) return std::nullopt;
  auto* start = reinterpret_cast<void* (*)()>(dlsym(opened, "gpulift_launch_counter_start"));
  auto* stop = reinterpret_cast<std::int64_t (*)(void*)>(dlsym(opened, "gpulift_launch_counter_stop"));
  std::int64_t count = 0;
  const auto end = [&](void* started) { count = stop(started); };
  std::unique_ptr<void, decltype(end)> counter(start(), end);
  if (!counter) return std::nullopt;
  work();
  counter.reset();
  return count;
}

}  // namespace gpulift
