#include "safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format's numbers are little endian");

constexpr std::uint64_t kLargestHeader = 100'000'000;  // as the reference implementation has it
constexpr std::uint64_t kAlignment = 8;
constexpr const char* kMetadata = "__metadata__";  // texts, no tensor

constexpr std::array<std::pair<const char*, torch::ScalarType>, 10> kTypes{{{"F64", torch::kFloat64},
                                                                            {"F32", torch::kFloat32},
                                                                            {"F16", torch::kFloat16},
                                                                            {"BF16", torch::kBFloat16},
                                                                            {"I64", torch::kInt64},
                                                                            {"I32", torch::kInt32},
                                                                            {"I16", torch::kInt16},
                                                                            {"I8", torch::kInt8},
                                                                            {"U8", torch::kUInt8},
                                                                            {"BOOL", torch::kBool}}};

/// Where a tensor's bytes lie behind the header.
struct Entry {
  std::string name;
  torch::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin;
  std::uint64_t end;
};

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw std::runtime_error(std::filesystem::path(file).filename().string() + ": " + what);
}

[[noreturn]] void fail(const std::string& file, const std::string& tensor, const std::string& what) {
  fail(file, "tensor " + tensor + " " + what);
}

const char* name_of(torch::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  return nullptr;
}

std::optional<torch::ScalarType> type_named(const std::string& wanted) {
  for (const auto& [name, type] : kTypes) {
    if (name == wanted) return type;
  }
  return std::nullopt;
}

std::string text_of(torch::IntArrayRef shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Bytes of a shape; none where they are too many to count.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, torch::ScalarType type) {
  std::uint64_t bytes = c10::elementSize(type);
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor > 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

Entry entry_of(const std::string& file, const std::string& name, const Json& json) {
  try {
    const auto type_name = json.at("dtype").get<std::string>();
    const auto type = type_named(type_name);
    if (!type) fail(file, name, "has the type " + type_name + ", which is not known here");
    const auto offsets = json.at("data_offsets").get<std::array<std::uint64_t, 2>>();
    Entry entry{name, *type, json.at("shape").get<std::vector<std::int64_t>>(), offsets[0], offsets[1]};
    const auto bytes = bytes_of(entry.shape, entry.type);
    if (!bytes || entry.begin > entry.end || entry.end - entry.begin != *bytes)
      fail(file, name, "has a shape that does not take the bytes that it is given");
    return entry;
  } catch (const Json::exception&) {
    fail(file, name, "lacks dtype, shape or data_offsets, or has them in another form");
  }
}

/// The entries lie one behind the other and fill the rest of the file.
void require_gapless(const std::string& file, std::vector<Entry> entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes) fail(file, entry.name, "lies behind the end of the file, which was cut short");
    if (entry.begin < end) fail(file, entry.name, "overlaps another");
    if (entry.begin > end) fail(file, entry.name, "lies behind bytes of no tensor");
    end = entry.end;
  }
  if (end != data_bytes) fail(file, "has bytes behind its last tensor");
}

Json read_header(const std::string& file, std::istream& stream, std::uint64_t file_bytes) {
  std::uint64_t header_bytes = 0;
  stream.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  if (!stream) fail(file, "is no safetensors file: it has fewer than 8 bytes");
  if (header_bytes > kLargestHeader || header_bytes > file_bytes - sizeof header_bytes)
    fail(file, "is no safetensors file, or cut short: its header would take " + std::to_string(header_bytes) +
                   " bytes, the file has " + std::to_string(file_bytes));
  std::string text(header_bytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(header_bytes));
  Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!stream || !header.is_object()) fail(file, "is no safetensors file: its header is no JSON object");
  return header;
}

std::vector<Entry> entries_of(const std::string& file, const Json& header) {
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != kMetadata) entries.push_back(entry_of(file, name, json));
  }
  return entries;
}

/// Parameters first, then buffers, each under every name that it has.
std::vector<std::pair<std::string, torch::Tensor>> all_named(const Model& model) {
  std::vector<std::pair<std::string, torch::Tensor>> named;
  for (const auto& item : model.named_parameters()) named.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) named.emplace_back(item.key(), item.value());
  return named;
}

}  // namespace

void save_tensors(const NamedTensors& tensors, const std::string& file) {
  std::vector<std::pair<std::string, torch::Tensor>> ordered;
  for (const auto& [name, tensor] : tensors) ordered.emplace_back(name, tensor.detach().cpu().contiguous());
  // Wide elements first, so that all are aligned.
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  Json header = Json::object();
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : ordered) {
    const char* const type = name_of(tensor.scalar_type());
    if (type == nullptr) fail(file, name, "has a type that the format does not have");
    const std::uint64_t end = begin + tensor.nbytes();
    header[name] = {{"dtype", type}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t header_bytes = text.size();
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  stream << text;
  for (const auto& [name, tensor] : ordered) {
    stream.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  }
  stream.close();
  if (!stream) fail(file, "cannot be written");
}

NamedTensors load_tensors(const std::string& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) fail(file, "cannot be read");
  const auto file_bytes = static_cast<std::uint64_t>(stream.tellg());
  stream.seekg(0);
  const Json header = read_header(file, stream, file_bytes);
  const auto data_begin = static_cast<std::uint64_t>(stream.tellg());
  const std::vector<Entry> entries = entries_of(file, header);
  require_gapless(file, entries, file_bytes - data_begin);
  NamedTensors tensors;
  for (const Entry& entry : entries) {
    torch::Tensor tensor = torch::empty(entry.shape, entry.type);
    stream.seekg(static_cast<std::streamoff>(data_begin + entry.begin));
    stream.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    if (!stream) fail(file, entry.name, "cannot be read");
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

NamedTensors state_of(const Model& model) {
  NamedTensors state;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : all_named(model)) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) state.emplace(name, tensor);
  }
  return state;
}

void save_weights(const Model& model, const std::string& file) { save_tensors(state_of(model), file); }

void load_weights(Model& model, const std::string& file) {
  const NamedTensors loaded = load_tensors(file);
  const NamedTensors state = state_of(model);
  for (const auto& [name, tensor] : state) {
    const auto found = loaded.find(name);
    if (found == loaded.end()) fail(file, name, "of the model is missing");
    const torch::Tensor& other = found->second;
    if (other.sizes() != tensor.sizes())
      fail(file, name, "has the shape " + text_of(other.sizes()) + ", the model's is " + text_of(tensor.sizes()));
    if (other.scalar_type() != tensor.scalar_type())
      fail(file, name,
           std::string("has the type ") + c10::toString(other.scalar_type()) + ", the model's is " +
               c10::toString(tensor.scalar_type()));
  }
  for (const auto& [name, tensor] : loaded) {
    if (!state.contains(name)) fail(file, name, "is not in the model");
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) torch::Tensor(tensor).copy_(loaded.at(name));
}

}  // namespace gpulift
