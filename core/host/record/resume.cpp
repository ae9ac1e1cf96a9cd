#include "resume.hpp"

#include "catalogue.hpp"
#include "core/harness/record_file.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

struct Fact {
  const char* name;
  const char* key;  // in the context, a JSON pointer
};

constexpr Fact kOrigins[] = {{"driver", "/driver"},
                             {"CPU", "/host/cpu"},
                             {"build type", "/build/type"},
                             {"compiler flags", "/build/flags"},
                             {"compiler flags for CUDA", "/build/cuda_flags"},
                             {"linker flags", "/build/link_flags"},
                             {"commit", "/build/commit"},
                             {"uncommitted changes", "/build/dirty"}};

// Not --launches: a run may be gone on with for more of them.
constexpr Fact kComparedSettings[] = {{"--quick", "/options/quick"},
                                      {"--arm-time", "/options/arm_time_s"},
                                      {"--precision", "/options/precision"},
                                      {"--seed", "/options/seed"}};

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string refusal(const std::string& fact, const std::string& there, const std::string& here) {
  return "the records in that folder come from " + fact + " " + there + ", here it is " + here +
         "; name another folder with --records";
}

/// Empty where the context does not know the fact.
std::string known(const Json& context, const char* key) {
  const Json::json_pointer pointer(key);
  return context.contains(pointer) ? text_of(context.at(pointer)) : "";
}

/// Of the first GPU: records of cases that take several name the others, the context of a run does not.
std::string card_of(const Json& context) {
  const std::string card = known(context, "/gpu/card");
  return card.empty() ? "none" : card;
}

/// Of an option that records have where it was given alone, so that slowed, untimed and plain launches never mix.
void require_same_option(const char* name, const char* option, const Json& none, const Json& theirs, const Json& ours) {
  const auto of = [&](const Json& context) { return context.value("options", Json::object()).value(option, none); };
  if (of(theirs) != of(ours)) throw OtherSettings(refusal(name, of(theirs).dump(), of(ours).dump()));
}

/// Of the process or, with "/build" ahead, of the compilers: what is not there was not set.
void require_same_environment(const Json& theirs, const Json& ours, const std::string& of) {
  const Json::json_pointer pointer(of + "/environment");
  const Json there = theirs.value(pointer, Json::object());
  const Json here = ours.value(pointer, Json::object());
  for (const Json& both : {there, here}) {
    for (const auto& [name, ignored] : both.items()) {
      const auto was = there.value(name, "not set");
      const auto is = here.value(name, "not set");
      if (was != is) throw NotComparable(refusal(name, was, is));
    }
  }
}

template <typename Refused, typename Facts>
void require_same(const Facts& facts, const Json& theirs, const Json& ours) {
  for (const Fact& fact : facts) {
    const std::string there = known(theirs, fact.key);
    const std::string here = known(ours, fact.key);
    if (!there.empty() && !here.empty() && there != here) throw Refused(refusal(fact.name, there, here));
  }
}

}  // namespace

void require_same_run(const std::vector<Json>& records, const Json& context) {
  for (const Json& record : records) {
    if (record.value("method", kMethodVersion) != kMethodVersion)
      throw NotComparable(refusal("method", record.at("method"), kMethodVersion));
    if (!record.contains("context")) continue;
    const Json& theirs = record.at("context");
    if (card_of(theirs) != card_of(context)) throw NotComparable(refusal("card", card_of(theirs), card_of(context)));
    require_same<NotComparable>(kOrigins, theirs, context);
    if (record.value("schema", "") == kSchemaVersion) {  // an older one tells less
      require_same_environment(theirs, context, "");
      require_same_environment(theirs, context, "/build");
    }
    require_same_option("--plant", "plant", 0, theirs, context);
    require_same_option("--profile", "profile", false, theirs, context);
    require_same<OtherSettings>(kComparedSettings, theirs, context);
  }
}

std::string record_key(const RecordSummary& record) {
  const std::string arm = record.arm.empty() ? "" : "/" + record.arm;
  return record.case_name + arm + "#" + std::to_string(record.launch);
}

Json earlier_metrics(const std::vector<RecordSummary>& records, const Job& job) {
  std::map<int, const RecordSummary*> before;
  for (const RecordSummary& record : records) {
    const bool is_of_case = record.case_name == full_case_id(job.technique, job.case_id) && record.arm == job.arm;
    const bool is_same = record.source == job.about.value("source", Json());
    if (is_of_case && is_same && record.launch < job.launch) before[record.launch] = &record;
  }
  Json earlier = Json::object();
  for (const auto& [launch, record] : before) {
    for (const ArmSummary& arm : record->arms) {
      if (arm.unmeasured.empty() && !earlier.contains(arm.name)) earlier[arm.name] = arm.metrics;
    }
  }
  return earlier;
}

void LatestRecords::add(RecordSummary record) {
  const auto [place, first] = places_.emplace(record_key(record), records_.size());
  if (first) {
    records_.push_back(std::move(record));
  } else {
    records_[place->second] = std::move(record);
  }
}

}  // namespace gpulift
