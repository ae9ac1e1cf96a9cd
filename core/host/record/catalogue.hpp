#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/technique.hpp"

namespace gpulift {

/// What a manifest says of one case.
struct CaseInfo {
  std::string id;  // "direction:h2d/bytes:4096"; empty for a technique with one case
  nlohmann::ordered_json point;
  bool quick = false;
  std::string regime;      // burst or sustained
  int gpus = 1;            // how many it needs
  bool off_sweep = false;  // the technique has no such case: a command line asked for it
};

/// What a manifest says of one technique; the module itself is not loaded.
struct TechniqueInfo {
  std::string id;
  std::filesystem::path module;  // of a technique in Python alone the script
  nlohmann::ordered_json manifest;
  std::vector<std::string> arms;
  std::vector<CaseInfo> cases;
  std::vector<std::string> python;
  int gpus = 1;  // the least number that any case needs
  bool ceiling = false;
  bool whole_steps = false;
  std::string abi_tag;
  std::string unavailable;  // why it was not built; empty: it was
  std::string remedy;

  /// Whether it is a script alone, without a module.
  bool is_script() const { return manifest.value("script", false); }
};

/// The folder has no usable manifests.
class CatalogueError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads every manifest in the folders, sorted by id. Throws CatalogueError, also where two have one id.
std::vector<TechniqueInfo> read_catalogue(const std::vector<std::filesystem::path>& folders);

/// The manifest of a module; written at build time, so that listing loads no module.
nlohmann::ordered_json manifest_of(const std::string& id, const std::string& abi_tag, const Technique& technique);

/// "source" of a manifest: name and SHA-256 of each line "<hash>  <name>" of the file, as sha256sum writes them.
/// Throws CatalogueError where a line is none.
nlohmann::ordered_json source_in(const std::filesystem::path& sums_file);

/// What a module of LibTorch was compiled against, by the version.py of its Python package: a manifest's "torch".
/// Throws CatalogueError when the file names no version.
nlohmann::ordered_json torch_in(const std::filesystem::path& version_file);

/// How many GPUs a case needs: an axis "gpus" asks for more than the technique's least number.
int gpus_of(int least, const nlohmann::ordered_json& point);

/// "direction:h2d/bytes:4096"
std::string case_id(const Point& point);
/// The point as a JSON object, and back. from_json throws nlohmann::json::exception.
nlohmann::ordered_json point_to_json(const Point& point);
Point point_from_json(const nlohmann::ordered_json& json);

/// "transfer/pinned_copy/direction:h2d/bytes:4096"
std::string full_case_id(const std::string& technique, const std::string& case_id);

}  // namespace gpulift
