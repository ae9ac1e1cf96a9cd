#include "group_runner.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <thread>

#include "core/harness/host_limits.hpp"
#include "core/harness/pattern.hpp"
#include "launch_counter.hpp"
#include "trial.hpp"

namespace gpulift {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 80;         // characters of an answer that is no answer
constexpr double kSecondThoughts_s = 0.5;  // after an error of one rank: was it another that ended?
constexpr double kLate_s = 20;             // of given ranks one after another: they work in step
constexpr double kLastFlush_s = 30;        // of a worker that a profiler looked at
constexpr double kFarewell_s = 5;          // of what stands for a worker elsewhere

/// gpulift_worker.py lies beside the modules, and runs the technique's script, which may lie elsewhere.
std::vector<std::string> python_command(const WorkerStart& start) {
  const auto script = std::filesystem::path(start.job.module).replace_extension(".py");
  auto worker = script.parent_path() / "gpulift_worker.py";  // in a duet each side has its own
  if (!std::filesystem::exists(worker))
    worker = std::filesystem::path(own_program()).parent_path() / "modules" / "gpulift_worker.py";
  return {start.python, worker.string(), script.string()};
}

std::map<std::string, std::string> environment_of(const WorkerStart& start, const Worker& worker) {
  auto environment = worker.environment;
  // So that scripts take as many threads as arms in C++, which know what control groups allow.
  environment["GPULIFT_CORES"] = std::to_string(allowed_cores(static_cast<int>(std::thread::hardware_concurrency())));
  const auto scratch = scratch_of_case(start.settings, start.job);
  environment[scratch.empty() ? "GPULIFT_SCRATCH_MISSING" : "GPULIFT_SCRATCH"] =
      scratch.empty() ? start.settings.scratch_missing : scratch.string();
  if (!worker.preload.empty()) environment["LD_PRELOAD"] = worker.preload;
  return environment;
}

/// What torch.distributed.init_process_group() and others look for.
void add_rank(std::map<std::string, std::string>& environment, int rank, int ranks, int port) {
  environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(ranks);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(port);
}

/// The same of a rank that a launcher started. It knows itself whether others are on another host.
void add_place(std::map<std::string, std::string>& environment, const Json& given, const Json& place) {
  environment["LOCAL_RANK"] = place.at("local_rank").dump();
  environment["LOCAL_WORLD_SIZE"] = place.at("local_ranks").dump();
  environment["MASTER_ADDR"] = given.at("address");
  environment["GPULIFT_NODES"] = given.at("facts").at("nodes").dump();
}

/// What gpulift_worker.py and gpulift_case.py read of the case.
Json question_of_script(const WorkerStart& start, bool on_device) {
  Job first_launch = start.job;
  first_launch.launch = 0;
  const auto& shared = start.job.shared;
  return {{"point", start.job.point},
          {"seed", case_seed(start.job, start.settings)},
          {"plant", start.settings.plant},
          {"launch_counter", on_device ? Json(launch_counter_library().string()) : Json(nullptr)},
          {"launch", start.job.launch + 1},
          {"check_seed", case_seed(first_launch, start.settings)},
          {"earlier", start.earlier},
          {"shared", shared.empty() ? Json(nullptr) : Json(shared.string())}};
}

/// Asks a child, since the loader ignores a missing preload with a message and goes on.
bool can_preload(const WorkerStart& start, const Worker& worker) {
  if (worker.preload.empty()) return true;
  Process child({own_program(), "--is-preloaded", worker.preload}, environment_of(start, worker),
                Process::Errors::kDiscard);
  return child.wait().exit_code == 0;
}

/// As what exchanges complains of other hosts, which no record names: torch has names or IPv6 in brackets, NCCL
/// <port> behind IPv6.
std::string without_addresses(const std::string& text) {
  static const Pattern addresses(R"(\[[^\[\]\s]+\]:\d+)"
                                 R"(|[0-9a-fA-F]*:[0-9a-fA-F:]+(?:%\w+)?<\d+>)"
                                 R"(|\[?(?:::ffff:)?\d{1,3}(?:\.\d{1,3}){3}\]?(?:[:<]\d+>?)?)");
  return addresses.replaced(text, "(address)");
}

/// "120 s", "0.5 s"
std::string in_seconds(double time_s) {
  std::ostringstream text;
  text << time_s << " s";
  return text.str();
}

/// Throws nlohmann's error for what is no window.
Window window_from_json(const Json& json) {
  Window window;
  window.start_s = json.at("start_s");
  window.host_s = json.at("host_s");
  window.enqueue_s = json.at("enqueue_s");
  if (json.contains("device_s")) window.device_s = json.at("device_s").get<double>();
  if (json.contains("cpu_s")) window.cpu_s = json.at("cpu_s").get<double>();
  if (json.contains("empty_launch_s")) window.empty_launch_s = json.at("empty_launch_s").get<double>();
  if (json.contains("precondition")) window.precondition = json.at("precondition").get<double>();
  if (json.contains("clock_error_s")) window.clock_error_s = json.at("clock_error_s").get<double>();
  return window;
}

std::optional<double> number(const Json& json, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  const Json& value = json.at(key);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();  // "not a number"
}

Cost cost_from_json(const Json& json) {
  return {.bytes = json.value("bytes", 0.0),
          .flops = json.value("flops", 0.0),
          .items = json.value("items", 0.0),
          .item = json.value("item", ""),
          .roof = json.value("roof", "")};
}

/// Throws nlohmann's error for what is no hello.
Hello hello_from_json(const Json& json) {
  Hello hello;
  hello.check_error = number(json, "check_error");
  hello.value = number(json, "value");
  hello.tolerance = number(json, "tolerance");
  hello.peak_host_bytes = json.at("peak_host_bytes");
  hello.has_events = json.at("has_events");
  hello.has_before = json.value("has_before", false);
  hello.rests = json.value("rests", false);
  hello.spent_s = json.value("spent_s", std::map<std::string, double>{});
  hello.metrics = json.value("metrics", Metrics{});
  hello.notes = json.value("notes", std::map<std::string, std::string>{});
  hello.versions = json.value("versions", std::map<std::string, std::string>{});
  if (json.contains("cost")) hello.cost = cost_from_json(json.at("cost"));
  if (json.contains("precondition")) {
    const Json& required = json.at("precondition");
    hello.precondition = {.name = required.at("name"), .look = {}, .most = required.at("most")};
  }
  hello.scratch = json.value("scratch", Json());
  return hello;
}

/// Not a number is the worst.
bool is_worse(std::optional<double> one, std::optional<double> other) {
  return one && (!other || (std::isnan(*one) ? !std::isnan(*other) : *one > *other));
}

void require_able(const std::vector<Json>& answers) {
  for (const Json& answer : answers) {
    if (answer.contains("skipped")) throw Skipped(answer.at("skipped"), answer.value("remedy", ""));
  }
}

Hello of_group(const std::vector<Hello>& ranks) {
  Hello hello = ranks.front();
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const Hello& rank = ranks[place];
    if (is_worse(rank.check_error, hello.check_error)) {
      hello.check_error = rank.check_error;
      hello.worst_rank = place;
    }
    hello.peak_host_bytes = std::max(hello.peak_host_bytes, rank.peak_host_bytes);
    for (const auto& [name, value] : rank.metrics) {
      if (name.starts_with("peak_")) hello.metrics[name] = std::max(value, hello.metrics[name]);
    }
  }
  return hello;
}

}  // namespace

int free_port() {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listening < 0) return 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast): POSIX
  const bool bound = bind(listening, generic, size) == 0 && getsockname(listening, generic, &size) == 0;
  close(listening);
  return bound ? ntohs(address.sin_port) : 0;
}

Window slowest(std::span<const Window> ranks) {
  Window window = ranks.front();
  double end_s = 0;
  std::vector<double> clock_errors_s;
  for (const Window& rank : ranks) {
    window.start_s = std::min(window.start_s, rank.start_s);
    end_s = std::max(end_s, rank.start_s + rank.host_s);
    window.enqueue_s = std::max(window.enqueue_s, rank.enqueue_s);
    if (rank.device_s) window.device_s = std::max(window.device_s.value_or(0), *rank.device_s);
    if (rank.empty_launch_s) window.empty_launch_s = std::max(window.empty_launch_s.value_or(0), *rank.empty_launch_s);
    if (rank.precondition) window.precondition = std::max(window.precondition.value_or(0), *rank.precondition);
    if (rank.clock_error_s) clock_errors_s.push_back(*rank.clock_error_s);
  }
  // The first start and the last end may be those of two ranks, each with its own error.
  std::sort(clock_errors_s.begin(), clock_errors_s.end(), std::greater<>());
  if (!clock_errors_s.empty())
    window.clock_error_s = clock_errors_s[0] + (clock_errors_s.size() > 1 ? clock_errors_s[1] : 0);
  window.host_s = end_s - window.start_s;
  const bool all_counted = std::all_of(ranks.begin(), ranks.end(), [](const Window& rank) { return !!rank.cpu_s; });
  window.cpu_s.reset();
  if (all_counted) {
    window.cpu_s = std::accumulate(ranks.begin(), ranks.end(), 0.0,
                                   [](double sum_s, const Window& rank) { return sum_s + *rank.cpu_s; });
  }
  return window;
}

GroupRunner::GroupRunner(const WorkerStart& start, const Arm& arm)
    : arm_(arm.name), timeout_s_(timeout_of(start.job, start.settings)) {
  if (!can_preload(start, *arm.worker)) {
    const std::filesystem::path library = arm.worker->preload;  // a record holds no path
    throw Skipped("the library " + library.filename().string() + " is not installed", arm.worker->remedy);
  }
  if (arm.worker->ranks > 1 && !start.settings.given.is_null()) places_ = start.settings.given.at("places");
  for (int rank = 0; rank < arm.worker->ranks; ++rank) start_rank(start, arm, rank);
}

GroupRunner::~GroupRunner() {
  if (!is_given()) return;
  const std::span elsewhere = std::span(ranks_).subspan(1);
  for (const auto& rank : elsewhere) rank->close_input();
  const double until_s = now_s() + kFarewell_s;
  for (const auto& rank : elsewhere) {
    std::string unheard;
    while (rank->receive(unheard, until_s - now_s()) == Process::Read::kLine) {
    }
  }
}

void GroupRunner::await_start() {
  started_ = answers_of_all();
  require_able(started_);
}

void GroupRunner::check() {
  // A worker of an older build, on the other side of a duet, does not wait: it has said all by now.
  const bool waits = started_.front().contains("ready");
  const std::vector<Json> answers = waits ? ask_all(Json{{"check", true}}) : started_;
  require_able(answers);
  std::vector<Hello> hellos;
  for (const Json& answer : answers) {
    try {
      hellos.push_back(hello_from_json(answer));
    } catch (const Json::exception&) {
      fail(hellos.size(), " answered what is no check: " + answer.dump().substr(0, kShown));
    }
  }
  hello_ = of_group(hellos);
}

void GroupRunner::start_rank(const WorkerStart& start, const Arm& arm, int rank) {
  const Worker& worker = *arm.worker;
  const bool on_device = start.has_device && (worker.python || worker.device);
  const auto place = worker.ranks > 1 ? static_cast<std::size_t>(rank) : 0;
  Json gpu = nullptr;
  if (on_device) gpu = is_given() ? places_.at(place).at("gpu") : Json(start.settings.gpus.at(place));
  const Json group{{"rank", rank}, {"ranks", worker.ranks}};
  auto environment = environment_of(start, worker);
  if (worker.ranks > 1) add_rank(environment, rank, worker.ranks, start.port);
  if (is_given()) add_place(environment, start.settings.given, places_.at(place));
  std::vector<std::string> command =
      worker.python ? python_command(start) : std::vector<std::string>{own_program(), "--serve-worker"};
  command.insert(command.begin(), worker.wrapper.begin(), worker.wrapper.end());
  const bool elsewhere = is_given() && rank > 0;
  if (elsewhere) {
    command = start.settings.given.at("relay").get<std::vector<std::string>>();
    command.push_back(std::to_string(rank));
  } else if (is_given()) {
    environment.merge(start.settings.given.at("environment").get<std::map<std::string, std::string>>());
  }
  try {
    ranks_.push_back(
        std::make_unique<Process>(command, elsewhere ? std::map<std::string, std::string>() : environment));
  } catch (const std::system_error& failure) {
    if (!worker.wrapper.empty())
      throw Skipped(worker.wrapper.front() + " cannot be started: " + failure.code().message(), worker.remedy);
    throw Skipped("the Python interpreter cannot be started: " + failure.code().message(),
                  "run ./gpulift setup, or name an interpreter with --python");
  }
  Json question = worker.python ? question_of_script(start, on_device)
                                : Json{{"job", to_json(start.job)}, {"settings", to_json(start.settings)}};
  question["arm"] = arm.name;
  question["gpu"] = gpu;
  question["waits"] = true;
  if (start.job.off_sweep) question["off_sweep"] = true;
  question.update(group);
  if (elsewhere) question["start"] = {{"file", start.job.module.filename().string()}, {"environment", environment}};
  // When a child no longer reads, its answer does not come either, and that says more.
  ranks_.back()->send(question.dump());
}

Window GroupRunner::run(std::int64_t lead_in_steps, std::int64_t steps) {
  const auto answers =
      ask_all(Json{{"lead_in_steps", lead_in_steps}, {"steps", steps}, {"by_events", clock_ != Clock::kHost}});
  std::vector<Window> windows;
  for (const Json& answer : answers) {
    if (answer.contains("skipped")) fail(windows.size(), ": " + answer.at("skipped").get<std::string>());
    try {
      if (answer.contains("planted")) planted_ = answer.at("planted").get<double>();
      windows.push_back(window_from_json(answer));
      if (!(windows.back().host_s > 0 && windows.back().device_s.value_or(1) > 0))
        fail(windows.size() - 1, " told a window without time: " + answer.dump().substr(0, kShown));
    } catch (const Json::exception&) {
      fail(windows.size(), " answered what is no window: " + answer.dump().substr(0, kShown));
    }
  }
  const Window window = slowest(windows);
  clock_error_s_ = std::max(clock_error_s_, window.clock_error_s.value_or(0));
  return window;
}

void GroupRunner::wake() { change(Json{{"wake", true}}); }

void GroupRunner::rest() { change(Json{{"rest", true}}); }

void GroupRunner::change(const Json& asked) {
  if (!rests()) return;
  const auto answers = ask_all(asked);
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].contains("skipped")) fail(rank, ": " + answers[rank].at("skipped").get<std::string>());
  }
}

void GroupRunner::profile_step() {
  ask_all(Json{{"profile_step", true}});
  for (const auto& rank : ranks_) {
    rank->close_input();
    std::string unheard;
    if (rank->receive(unheard, kLastFlush_s) == Process::Read::kClosed) rank->wait();
  }
}

std::optional<double> GroupRunner::launches_per_step() {
  return number(ask_all(Json{{"launches_per_step", true}}).front(), "launches_per_step");
}

std::vector<Json> GroupRunner::ask_all(const Json& question) {
  for (const auto& rank : ranks_) rank->send(question.dump());
  return answers_of_all();
}

/// One of each rank, or the one of a rank that skips: the others may wait for it in vain.
std::vector<Json> GroupRunner::answers_of_all() {
  std::vector<Json> answers(ranks_.size());
  std::vector<std::size_t> waited_for(ranks_.size());
  std::iota(waited_for.begin(), waited_for.end(), std::size_t{0});
  double until_s = now_s() + timeout_s_;
  while (!waited_for.empty()) {
    std::vector<Process*> children;
    for (const std::size_t rank : waited_for) children.push_back(ranks_[rank].get());
    std::size_t who = 0;
    std::string line;
    const auto got = Process::receive_any(children, who, line, until_s - now_s());
    if (got == Process::Read::kTimeout) {
      const bool late = is_given() && waited_for.size() < ranks_.size();
      throw WorkerFailed(names_of(waited_for) + " did not answer within " +
                         (late ? in_seconds(kLate_s) + " of the others" : in_seconds(timeout_s_) + " (see --timeout)"));
    }
    const std::size_t rank = waited_for[who];
    if (got == Process::Read::kClosed) fail(rank, " ended with " + ranks_[rank]->wait().text());
    Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) fail(rank, " answered what is no JSON object: " + line.substr(0, kShown));
    if (relay(rank, answer)) continue;
    waited_for.erase(waited_for.begin() + static_cast<std::ptrdiff_t>(who));
    if (answer.contains("error")) blame_for(rank, answer.at("error"), waited_for);
    if (answer.contains("failed")) throw Failed(name_of(rank) + ": " + answer.at("failed").get<std::string>());
    if (answer.contains("skipped")) return {answer};
    answers[rank] = std::move(answer);
    if (is_given() && waited_for.size() + 1 == ranks_.size()) until_s = std::min(until_s, now_s() + kLate_s);
  }
  return answers;
}

/// Of what rank 0 shares, to all others.
bool GroupRunner::relay(std::size_t from, const Json& answer) {
  if (!answer.contains("share")) return false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != from) ranks_[rank]->send(answer.dump());
  }
  return true;
}

/// A rank that ends takes its siblings with it: their complaint may come first, but it is not the cause.
void GroupRunner::blame_for(std::size_t rank, const std::string& error, std::vector<std::size_t> others) {
  const double until_s = now_s() + kSecondThoughts_s;
  while (!others.empty() && now_s() < until_s) {
    std::vector<Process*> children;
    for (const std::size_t other : others) children.push_back(ranks_[other].get());
    std::size_t who = 0;
    std::string line;
    const auto got = Process::receive_any(children, who, line, until_s - now_s());
    if (got == Process::Read::kClosed) fail(others[who], " ended with " + ranks_[others[who]]->wait().text());
    if (got == Process::Read::kTimeout) break;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(who));  // it complains, too, and will end
  }
  // What hangs leaves the others to complain.
  fail(rank, ": " + error + (is_given() && !others.empty() ? "; nothing came from " + names_of(others) : ""));
}

std::string GroupRunner::name_of(std::size_t rank) const {
  if (ranks_.size() == 1) return "the worker of arm " + arm_;
  const std::string node = is_given() ? " (node " + places_.at(rank).at("node").dump() + ")" : "";
  return "rank " + std::to_string(rank) + node + " of arm " + arm_;
}

std::string GroupRunner::names_of(const std::vector<std::size_t>& ranks) const {
  std::string names;
  for (const std::size_t rank : ranks) names += (names.empty() ? "" : " and ") + name_of(rank);
  return names;
}

void GroupRunner::fail(std::size_t rank, const std::string& what) {
  throw WorkerFailed(name_of(rank) + (is_given() ? without_addresses(what) : what));
}

}  // namespace gpulift
