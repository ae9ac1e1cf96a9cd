#pragma once

#include <memory>
#include <string>

namespace gpulift {

/// A regular expression. std::regex takes a compiler seconds, so that one file alone has it.
class Pattern {
 public:
  enum class Grammar { kEcmaScript, kExtended };

  /// Throws std::invalid_argument, which says why, where the text is no regular expression.
  explicit Pattern(const std::string& text, Grammar grammar = Grammar::kEcmaScript);

  bool matches(const std::string& text) const;  // all of it
  bool is_part_of(const std::string& text) const;
  /// The text with `replacement` for every match, in which $1 is what the first group matched.
  std::string replaced(const std::string& text, const std::string& replacement) const;

 private:
  struct Expression;
  std::shared_ptr<const Expression> expression_;
};

}  // namespace gpulift
