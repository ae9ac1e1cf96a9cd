#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace gpulift {

/// What a process says that has mounted a file system in memory over the folder, with these options; none where the
/// system lets nobody mount.
inline std::optional<std::string> said_on_mount(const std::filesystem::path& folder, const char* options,
                                                unsigned long flags, const std::function<std::string()>& say) {
  std::array<int, 2> answer{};
  EXPECT_EQ(pipe(answer.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool mounted = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("none", folder.c_str(), "tmpfs", flags, options) == 0;
    const std::string text = mounted ? say() : "";
    _exit(mounted && write(answer[1], text.data(), text.size()) >= 0 ? 0 : 1);
  }
  close(answer[1]);
  std::array<char, 512> text{};
  const auto length = read(answer[0], text.data(), text.size());
  close(answer[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return {};
  return std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
}

}  // namespace gpulift
