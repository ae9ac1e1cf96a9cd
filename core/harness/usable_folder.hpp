#pragma once

#include <filesystem>
#include <string>

namespace gpulift {

/// What a folder has to serve for.
struct FolderNeeds {
  double free_bytes = 1 << 20;
  bool runs_code = false;  // libraries are loaded from it
};

/// Why the system refuses a folder, in one line without a path, fit for a record: "the scratch folder is read-only".
/// `name` is what it is called, `error` one of errno.
std::string folder_refusal(const std::string& name, int error);

/// Why the folder cannot serve, in such a line; empty where it can. A file is made in it, and removed.
std::string why_unusable(const std::filesystem::path& folder, const std::string& name, const FolderNeeds& needs);

/// What this user may still write; 0 where the system does not say.
double free_bytes(const std::filesystem::path& folder);

/// A folder and the variable that names it, which is empty where it is the usual one.
struct ChosenFolder {
  std::filesystem::path path;
  std::string chosen_by;
};

/// Where temporary files go: to what TMPDIR, TMP, TEMP or TEMPDIR names, or else to /tmp.
ChosenFolder temporary_folder();

/// Throws std::invalid_argument, which names the folder and what chose it, where it cannot serve.
void require_temporary_folder(const FolderNeeds& needs);

}  // namespace gpulift
