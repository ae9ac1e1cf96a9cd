#pragma once
// Shared by the end-to-end tests: runs gpulift-bench as a user would, in a folder of its own.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/harness/json.hpp"
#include "core/harness/testing/temporary_folder.hpp"

namespace gpulift::testing_programs {

inline std::string content_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class ProgramTest : public testing::Test {
 protected:
  using Json = nlohmann::ordered_json;

  struct Result {
    int exit_code = -1;  // or minus the signal
    std::string output;
    std::string errors;
  };

  ProgramTest() { std::filesystem::create_directory(folder_ / "tmp"); }

  static std::filesystem::path build() { return GPULIFT_BUILD_FOLDER; }
  std::filesystem::path records_folder() const { return folder_ / "records"; }

  /// A folder of modules with these testing techniques alone.
  std::filesystem::path modules(const std::vector<std::string>& names) const {
    const auto chosen = folder_ / "modules";
    std::filesystem::create_directories(chosen);
    for (const auto& name : names) {
      for (const char* ending : {".so", ".json", ".py"}) link(chosen, "testing." + name + ending);
    }
    for (const auto& entry : std::filesystem::directory_iterator(build() / "testing-modules")) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with("gpulift_")) link(chosen, file);  // the worker of Python arms, and what it imports
    }
    return chosen;
  }

  /// The manifest of a testing technique in such a folder, changed.
  static void change_manifest(const std::filesystem::path& folder, const std::string& name,
                              const std::function<void(Json&)>& change) {
    const auto file = folder / ("testing." + name + ".json");
    Json manifest = Json::parse(content_of(file));
    change(manifest);
    std::filesystem::remove(file);  // a link
    std::ofstream(file) << manifest;
  }

  /// The filter of the cases that do one of these.
  static std::string does(const std::vector<std::string>& words) {
    std::string either;
    for (const std::string& word : words) either += (either.empty() ? "" : "|") + word;
    return "--benchmark_filter=does:(" + either + ")$";
  }

  /// Runs those cases of one testing technique briefly, with records.
  Result measure_what(const std::string& technique, const std::vector<std::string>& words,
                      std::vector<std::string> more = {}) const {
    more.push_back(does(words));
    return measure(modules({technique}), std::move(more));
  }

  /// Starts the program; its lock and temporary files stay in our folder, so that tests may run side by side.
  pid_t start(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), GPULIFT_BENCH);
    const pid_t child = fork();
    if (child != 0) return child;
    setpgid(0, 0);
    setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    redirect("output", STDOUT_FILENO);
    redirect("errors", STDERR_FILENO);
    if (file_limit_bytes_ > 0) {
      signal(SIGXFSZ, SIG_IGN);  // then writing fails with an error, as it does on a full disk
      const rlimit limit{file_limit_bytes_, file_limit_bytes_};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }

  Result finish(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), content_of(folder_ / "output"),
            content_of(folder_ / "errors")};
  }

  Result run(const std::vector<std::string>& arguments,
             const std::map<std::string, std::string>& environment = {}) const {
    return finish(start(arguments, environment));
  }

  /// Runs all techniques of the folder briefly, with records.
  Result measure(const std::filesystem::path& modules, std::vector<std::string> more = {}) const {
    return run(measure_arguments(modules, std::move(more)));
  }

  std::vector<std::string> measure_arguments(const std::filesystem::path& modules,
                                             std::vector<std::string> more) const {
    std::vector<std::string> arguments{
        "--modules", modules.string(), "--records", records_folder().string(), "--arm-time", "0.01"};
    if (std::find(more.begin(), more.end(), "--launches") == more.end()) more.insert(more.end(), {"--launches", "1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<Json> records() const {
    std::vector<Json> all;
    if (!std::filesystem::exists(records_folder())) return all;
    for (const auto& entry : std::filesystem::directory_iterator(records_folder())) {
      if (entry.path().extension() != ".jsonl") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    }
    return all;
  }

  /// The only record of a testing technique, or of what does this.
  Json record_of(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& record : records()) {
      if (record.at("technique") == "testing/" + name || record.at("case").value("does", "") == name)
        found.push_back(record);
    }
    EXPECT_EQ(found.size(), 1U) << name;
    return found.empty() ? Json::object() : found.front();
  }

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  rlim_t file_limit_bytes_ = 0;  // 0: none

 private:
  static void link(const std::filesystem::path& folder, const std::string& file) {
    const auto built = build() / "testing-modules" / file;
    if (std::filesystem::exists(built) && !std::filesystem::exists(folder / file)) {
      std::filesystem::create_symlink(built, folder / file);
    }
  }

  void redirect(const std::string& name, int descriptor) const {
    const int file = open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, descriptor);
    close(file);
  }
};

}  // namespace gpulift::testing_programs
