#pragma once
// What the host program finds in a technique's shared module.

namespace gpulift {

struct Technique;  // technique.hpp, which takes the compiler seconds that a module's entry can do without

/// The one exported object of a module, under the symbol name kModuleSymbol.
struct ModuleEntry {
  const char* abi_tag;  // hash of the core headers and the compiler; must equal the host's
  const char* id;       // "<theme>/<name>", from the path of the technique's file
  const Technique* technique;
};

inline constexpr const char* kModuleSymbol = "gpulift_module";

}  // namespace gpulift
