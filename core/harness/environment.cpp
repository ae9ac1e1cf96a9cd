#include "environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "pattern.hpp"

namespace gpulift {
namespace {

constexpr std::array kRecordedVariables{
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_AUTO_BOOST",
    "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PERF_BOOST",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_GRAPHS_USE_NODE_PRIORITY",
    "CUDA_INJECTION64_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_MODULE_LOADING",
    "CUDA_SCALE_LAUNCH_QUEUES",
    "GLIBC_TUNABLES",
    "GPULIFT_TORCH",
    "LD_BIND_NOW",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "PYTHONOPTIMIZE",
    "PYTHONPERFSUPPORT",
    "PYTHONTRACEMALLOC",
    "PYTHON_GIL",
    "PYTHON_JIT",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_JIT",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
};
constexpr std::array kRecordedPrefixes{
    "ATEN_",     "CUBLASLT_",    "CUBLAS_",        "CUDA_MPS_", "DNNL_",   "GOMP_",   "JAX_",      "KMP_",
    "MALLOC_",   "MIMALLOC_",    "MKL_",           "NCCL_",     "OMP_",    "ONEDNN_", "OPENBLAS_", "PYTORCH_TUNABLEOP_",
    "TCMALLOC_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_",    "TRITON_", "XLA_"};
constexpr std::array kLibraries{"LD_AUDIT", "LD_PRELOAD"};
constexpr std::array kFolders{"LD_LIBRARY_PATH"};
constexpr std::array kMentionedVariables{"CUDA_VISIBLE_DEVICES", "OMP_PLACES"};
constexpr const char* kSet = "set";   // instead of a value that may tell of the machine
constexpr const char* kHidden = "#";  // instead of a path in flags: whoever guesses it would know it by its hash

// What is in the names of variables that hold a file, a library, a machine or a part of it.
constexpr std::array kTellingParts{"ADDR",  "COMM_ID", "HOST",    "LIBRARIES", "PLUGIN", "UUID",
                                   "_FILE", "_HCA",    "_IFNAME", "_PATH",     "_TRACE"};
// What is in the names of variables that say where something is kept, which changes no result.
constexpr std::array kPlaces{"CACHE_DIR", "CACHE_PATH", "DUMP_DIR", "TORCH_HOME", "TORCH_LOGS"};
constexpr std::size_t kLongestSetting = 64;  // of variables known by their prefix: a longer one may hold anything

template <std::size_t count>
bool is_one_of(const std::array<const char*, count>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <std::size_t count>
bool has_part(const std::array<const char*, count>& parts, const std::string& name) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

bool is_recorded_by_prefix(const std::string& name) {
  return std::any_of(kRecordedPrefixes.begin(), kRecordedPrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

/// Only such text fits in a record whatever its encoding.
bool is_plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char letter) { return letter >= ' ' && letter <= '~'; });
}

bool is_recorded(const std::string& name) {
  return is_one_of(kRecordedVariables, name) || is_one_of(kMentionedVariables, name) || is_one_of(kLibraries, name) ||
         is_one_of(kFolders, name) || (is_recorded_by_prefix(name) && is_plain(name) && !has_part(kPlaces, name));
}

/// The option that a path of a command line is glued to: "-I" of "-I/home/a", "-I" of "-Isub/a"; else empty.
std::string glued_option(const std::string& text) {
  const auto before = text.substr(0, text.find_first_of("/~"));
  if (!before.starts_with('-')) return {};
  constexpr std::array kLong{"-idirafter", "-include", "-iquote", "-isystem"};
  return is_one_of(kLong, before) ? before : before.substr(0, 2);
}

std::string without_path(const std::string& text) {
  if (text.find_first_of("/~") == std::string::npos) return text;
  const auto option = glued_option(text);
  const auto path = text.substr(option.size());
  const auto name = path.substr(path.find_last_of('/') + 1);
  static const Pattern library(R"(lib[\w+.-]*\.(so[.\d]*|a))");
  return option + (library.matches(name) ? name : kHidden);
}

/// "libjemalloc.so.2 libother.so" of files that spaces or colons part, as the loader reads them.
std::string library_names(std::string value) {
  std::replace(value.begin(), value.end(), ':', ' ');
  std::istringstream files(value);
  std::string names;
  for (std::string file; files >> file;) names += (names.empty() ? "" : " ") + file.substr(file.find_last_of('/') + 1);
  return names;
}

}  // namespace

std::string without_paths(const std::string& text) {
  constexpr const char* kSeparators = " \t,:;='\"";
  std::string shown;
  for (std::size_t from = 0; from < text.size();) {
    const auto end = std::min(text.find_first_of(kSeparators, from), text.size());
    shown += without_path(text.substr(from, end - from));
    if (end < text.size()) shown += text[end];
    from = end + 1;
  }
  return is_plain(shown) ? shown : kHidden;
}

std::string recorded_value(const std::string& name, const std::string& value) {
  if (!is_plain(value)) return kSet;
  if (is_one_of(kLibraries, name)) return library_names(value);
  const bool is_telling = is_one_of(kMentionedVariables, name) || has_part(kTellingParts, name);
  const bool is_too_long = value.size() > kLongestSetting && !is_one_of(kRecordedVariables, name);
  // No setting has a slash; a value that does may be a path of the machine.
  const bool has_slash = value.find('/') != std::string::npos;
  return is_telling || is_too_long || has_slash ? kSet : value;
}

nlohmann::ordered_json environment_facts() {
  std::map<std::string, std::string> facts;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    const auto name = text.substr(0, equals);
    const auto value = text.substr(equals + 1);
    const bool loads_nothing = value.empty() && (is_one_of(kLibraries, name) || is_one_of(kFolders, name));
    if (is_recorded(name) && !loads_nothing) facts[name] = recorded_value(name, value);
  }
  return facts;
}

nlohmann::ordered_json build_environment(const std::string& lines) {
  auto facts = nlohmann::ordered_json::object();
  std::istringstream settings(lines);
  for (std::string setting; std::getline(settings, setting);) {
    const auto equals = setting.find('=');
    if (equals != std::string::npos) facts[setting.substr(0, equals)] = without_paths(setting.substr(equals + 1));
  }
  return facts;
}

}  // namespace gpulift
