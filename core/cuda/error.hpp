#pragma once

#include <algorithm>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gpulift {

/// A call into a library failed. The text names library, code, message and place.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device (or pinned host memory) is exhausted: a case that asks for too much is skipped, not failed.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// The device cannot do what was asked (no such algorithm or type): the case or arm is skipped, not failed.
class NotSupported : public Error {
 public:
  using Error::Error;
};

/// The build holds no code that this device or its driver can run.
class NoDeviceCode : public Error {
 public:
  using Error::Error;
};

/// "<library>: <code>: <message> (<file>:<line>)", the file without its folders.
inline std::string describe_failure(std::string_view library, std::string_view code, std::string_view message,
                                    const std::source_location& place) {
  std::string_view file = place.file_name();
  file.remove_prefix(std::min(file.size(), file.rfind('/') + 1));
  std::string text(library);
  text.append(": ").append(code);
  if (!message.empty()) text.append(": ").append(message);
  return text.append(" (").append(file).append(":").append(std::to_string(place.line())).append(")");
}

}  // namespace gpulift
