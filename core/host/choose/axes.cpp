#include "axes.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargest = std::numeric_limits<int>::max();  // as techniques keep counts and lengths
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;          // beyond it JSON's numbers lose digits
constexpr std::int64_t kMostProcesses = 1024;                       // or threads, which a host may all have

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string joined(const std::vector<std::string>& texts, const std::string& between) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : between) + text;
  return all;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char letter : text) {
    if (letter == at) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// How many numbers up to kLargest the word has, as 3 of 4096x4096x1024; 0 of any other word.
std::size_t sides_of(const std::string& word) {
  const auto parts = split(word, 'x');
  const bool all = std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    const auto number = number_in(part);
    return number && *number > 0 && *number <= kLargest && part == std::to_string(*number);
  });
  return all ? parts.size() : 0;
}

std::int64_t most_of(const std::string& axis) {
  static const std::set<std::string> kCounting{"cores", "gpus", "ranks", "readers", "threads", "workers"};
  if (kCounting.contains(axis)) return kMostProcesses;
  return axis.ends_with("bytes") ? kMostBytes : kLargest;
}

/// What the sweep has on the axis, each once, in its order.
std::vector<Json> values_on(const std::string& axis, const TechniqueInfo& technique) {
  std::vector<Json> values;
  for (const CaseInfo& info : technique.cases) {
    const auto found = info.point.find(axis);
    if (found != info.point.end() && std::find(values.begin(), values.end(), *found) == values.end())
      values.push_back(*found);
  }
  return values;
}

/// What an axis takes. A technique asks for its own words and takes any other for one of these: only numbers are free.
class Domain {
 public:
  Domain(const std::string& name, std::vector<Json> of_sweep) : of_sweep_(std::move(of_sweep)), most_(most_of(name)) {
    for (const Json& value : of_sweep_) {
      if (value.is_number()) least_ = std::min(least_.value_or(1), value.get<std::int64_t>());
      if (value.is_string()) sides_.insert(sides_of(value));
    }
    sides_.erase(0);
  }

  std::optional<Json> taken(const std::string& text) const {
    for (const Json& value : of_sweep_) {
      if (text_of(value) == text) return value;
    }
    const auto number = number_in(text);
    if (least_ && number && *number >= *least_ && *number <= most_) return Json(*number);
    return sides_.contains(sides_of(text)) ? std::optional<Json>(text) : std::nullopt;
  }

  std::string told() const {
    std::vector<std::string> kinds;
    if (least_) kinds.push_back("whole numbers from " + std::to_string(*least_) + " to " + std::to_string(most_));
    for (const std::size_t sides : sides_) {
      const auto like = std::find_if(of_sweep_.begin(), of_sweep_.end(), [sides](const Json& value) {
        return value.is_string() && sides_of(value) == sides;
      });
      kinds.push_back("numbers as in " + text_of(*like));
    }
    for (const Json& value : of_sweep_) {
      if (value.is_string() && sides_of(value) == 0) kinds.push_back(text_of(value));
    }
    return joined(kinds, ", ");
  }

 private:
  std::vector<Json> of_sweep_;
  std::optional<std::int64_t> least_;  // none: it has no numbers
  std::int64_t most_;
  std::set<std::size_t> sides_;  // of its words that are numbers with an x between
};

struct Chosen {
  std::string axis;
  std::vector<Json> values;
};

/// The cases of the technique with each of the values on the axis.
std::vector<CaseInfo> cases_with(const std::vector<CaseInfo>& cases, const Chosen& chosen) {
  std::vector<CaseInfo> all;
  for (const CaseInfo& info : cases) {
    for (const Json& value : chosen.values) {
      CaseInfo other = info;
      other.point[chosen.axis] = value;
      other.id = case_id(point_from_json(other.point));
      other.off_sweep = true;  // until the sweep is found to have it
      const auto same = std::find_if(all.begin(), all.end(), [&](const CaseInfo& one) { return one.id == other.id; });
      if (same == all.end()) {
        all.push_back(std::move(other));
      } else {
        same->quick = same->quick || other.quick;
      }
    }
  }
  return all;
}

void keep_what_the_sweep_has(std::vector<CaseInfo>& cases, const TechniqueInfo& technique) {
  for (CaseInfo& info : cases) {
    const auto same = std::find_if(technique.cases.begin(), technique.cases.end(),
                                   [&](const CaseInfo& one) { return one.id == info.id; });
    if (same != technique.cases.end()) {
      info = *same;
      continue;
    }
    info.regime = info.point.value("regime", info.regime);
    info.gpus = gpus_of(technique.gpus, info.point);
  }
}

/// Throws std::invalid_argument for a value that its axis cannot have.
TechniqueInfo with_values(const TechniqueInfo& technique, const std::vector<AxisValues>& axes) {
  TechniqueInfo other = technique;
  for (const AxisValues& asked : axes) {
    const Domain axis(asked.name, values_on(asked.name, technique));
    Chosen chosen{asked.name, {}};
    for (const std::string& text : asked.values) {
      const auto value = axis.taken(text);
      if (!value) {
        throw std::invalid_argument("--axis " + asked.name + "=" + text + ": " + technique.id + " takes " +
                                    axis.told() + " there");
      }
      chosen.values.push_back(*value);
    }
    other.cases = cases_with(other.cases, chosen);
  }
  keep_what_the_sweep_has(other.cases, technique);
  auto& listed = other.manifest["cases"] = Json::array();
  for (const CaseInfo& info : other.cases) {
    listed.push_back({{"id", info.id}, {"point", info.point}, {"quick", info.quick}, {"regime", info.regime}});
    if (info.off_sweep) listed.back()["off_sweep"] = true;
  }
  return other;
}

bool has_all(const TechniqueInfo& technique, const std::vector<AxisValues>& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](const AxisValues& axis) { return !values_on(axis.name, technique).empty(); });
}

std::string axes_of(const std::vector<const TechniqueInfo*>& techniques) {
  std::set<std::string> names;
  for (const TechniqueInfo* technique : techniques) {
    for (const CaseInfo& info : technique->cases) {
      for (const auto& [name, value] : info.point.items()) names.insert(name);
    }
  }
  return names.empty() ? "there is none" : "there are " + joined({names.begin(), names.end()}, ", ");
}

}  // namespace

AxisValues parse_axis(const std::string& text) {
  const std::size_t sign = text.find('=');
  AxisValues axis{text.substr(0, sign), {}};
  if (sign != std::string::npos) axis.values = split(text.substr(sign + 1), ',');
  const bool empty = std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end();
  if (axis.name.empty() || axis.values.empty() || empty)
    throw std::invalid_argument("--axis " + text + ": give a name and values, as in rows=4096,8192");
  return axis;
}

std::vector<TechniqueInfo> with_axes(const std::vector<TechniqueInfo>& catalogue, const std::vector<AxisValues>& axes,
                                     const std::function<bool(const TechniqueInfo&)>& is_selected) {
  if (axes.empty()) return catalogue;
  std::set<std::string> names;
  for (const AxisValues& axis : axes) {
    if (!names.insert(axis.name).second)
      throw std::invalid_argument("--axis names " + axis.name + " twice: give its values with commas between");
  }
  std::vector<TechniqueInfo> all;
  std::vector<const TechniqueInfo*> selected;
  bool any = false;
  for (const TechniqueInfo& technique : catalogue) {
    const bool is_wanted = is_selected(technique);
    const bool is_unknown = !technique.unavailable.empty();
    const bool has = is_unknown || has_all(technique, axes);
    if (is_wanted) selected.push_back(&technique);
    any = any || (is_wanted && has);
    if (!has) continue;
    try {
      all.push_back(is_unknown ? technique : with_values(technique, axes));
    } catch (const std::invalid_argument&) {
      if (is_wanted) throw;
    }
  }
  if (!selected.empty() && !any) {
    throw std::invalid_argument("--axis " + joined({names.begin(), names.end()}, ", ") +
                                ": no technique that was chosen has " + (names.size() > 1 ? "all these axes" : "it") +
                                "; " + axes_of(selected));
  }
  return all;
}

}  // namespace gpulift
