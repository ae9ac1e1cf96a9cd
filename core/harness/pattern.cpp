#include "pattern.hpp"

#include <regex>
#include <stdexcept>

namespace gpulift {

struct Pattern::Expression {
  std::regex regex;
};

Pattern::Pattern(const std::string& text, Grammar grammar) {
  try {
    expression_ = std::make_shared<Expression>(
        std::regex(text, grammar == Grammar::kExtended ? std::regex::extended : std::regex::ECMAScript));
  } catch (const std::regex_error& error) {
    throw std::invalid_argument(error.what());
  }
}

bool Pattern::matches(const std::string& text) const { return std::regex_match(text, expression_->regex); }

bool Pattern::is_part_of(const std::string& text) const { return std::regex_search(text, expression_->regex); }

std::string Pattern::replaced(const std::string& text, const std::string& replacement) const {
  return std::regex_replace(text, expression_->regex, replacement);
}

}  // namespace gpulift
