#include "gpu_names.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace gpulift {
namespace {

constexpr const char* kUuid = "GPU-";
constexpr const char* kMig = "MIG-";
constexpr const char* kAll = "all";
constexpr const char* kNoneVisible = "no GPU is visible; ./gpulift doctor says why";

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument("--gpus " + name + ": " + why);
}

std::optional<int> as_index(const std::string& name) {
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_whole = error == std::errc() && end == name.data() + name.size();
  return is_whole && index >= 0 ? std::optional(index) : std::nullopt;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

int index_of(const std::string& name, const std::vector<std::string>& uuids) {
  if (uuids.empty()) refuse(name, kNoneVisible);
  const auto fits = [start = lower_case(name)](const std::string& uuid) { return lower_case(uuid).starts_with(start); };
  const auto found = std::find_if(uuids.begin(), uuids.end(), fits);
  if (found == uuids.end()) refuse(name, "no visible GPU has this UUID; nvidia-smi -L lists them");
  if (std::any_of(found + 1, uuids.end(), fits)) refuse(name, "several GPUs begin so; give more of the UUID");
  return static_cast<int>(found - uuids.begin());
}

}  // namespace

std::vector<int> gpu_indices(const std::vector<std::string>& names,
                             const std::function<std::vector<std::string>()>& uuids) {
  std::vector<int> indices;
  if (names == std::vector<std::string>{kAll}) {
    indices.resize(uuids().size());
    std::iota(indices.begin(), indices.end(), 0);
    if (indices.empty()) refuse(kAll, kNoneVisible);
    return indices;
  }
  for (const std::string& name : names) {
    if (const auto index = as_index(name)) {
      indices.push_back(*index);
    } else if (name.starts_with(kMig)) {
      refuse(name, "a MIG instance is chosen with CUDA_VISIBLE_DEVICES=" + name + ", and is then GPU 0");
    } else if (name.starts_with(kUuid) && name.size() > std::string(kUuid).size()) {
      indices.push_back(index_of(name, uuids()));
    } else {
      refuse(name, "name a GPU by its index, as 0, or by its UUID, as nvidia-smi -L prints it");
    }
  }
  return indices;
}

}  // namespace gpulift
