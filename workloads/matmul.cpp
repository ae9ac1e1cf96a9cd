#include "workloads/matmul.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/handles.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/lt_operation.hpp"

namespace gpulift {
namespace {

static_assert(sizeof(MatmulPlan::algorithm) == sizeof(cublasLtMatmulAlgo_t));

constexpr std::uint64_t kSecondOperand = 0xD1B54A32D192ED03ull;  // makes the seed of B from that of A

/// What a number format is to cuBLASLt and to the data.
struct Format {
  const char* name;
  ElementType input;
  ElementType output;
  cublasComputeType_t compute;
  cudaDataType scale_type;
  int least_architecture;
  float data_scale;  // the operands hold the originals times this
  bool integers;
  double input_roundoff;  // largest relative change of an element when it becomes an operand
  double output_roundoff;
  double sum_roundoff;  // of the accumulator
};

// kTf32: tensor cores may cut the digits that they do not use instead of rounding, hence 2^-10 and not 2^-11.
// kFp8: |original| < 6.8, so that 64 times it stays below 448, the largest e4m3; what lies below 2^-12 is subnormal and
// too small to matter. In the fast mode Hopper keeps about 14 bits of each partial sum.
// kInt8: a step of 4/127 standard deviations.
const Format& format_of(MatmulType type) {
  using enum ElementType;
  static constexpr Format kFp32Format{"fp32", kFp32,   kFp32,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 0, 1, false,
                                      0,      0x1p-24, 0x1p-24};
  static constexpr Format kTf32Format{"tf32",  kFp32,   kFp32,  CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, 80, 1, false,
                                      0x1p-10, 0x1p-24, 0x1p-24};
  static constexpr Format kFp16Format{"fp16",  kFp16,   kFp16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 70, 1, false,
                                      0x1p-11, 0x1p-11, 0x1p-24};
  static constexpr Format kBf16Format{"bf16", kBf16,  kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 80, 1, false,
                                      0x1p-8, 0x1p-8, 0x1p-24};
  static constexpr Format kFp8Format{"fp8",  kFp8E4m3, kBf16,  CUBLAS_COMPUTE_32F, CUDA_R_32F, 89, 64, false,
                                     0x1p-4, 0x1p-8,   0x1p-13};
  static constexpr Format kInt8Format{"int8", kInt8, kInt32, CUBLAS_COMPUTE_32I, CUDA_R_32I, 75, 127.0f / 4, true,
                                      0,      0,     0};
  switch (type) {
    case MatmulType::kFp32:
      return kFp32Format;
    case MatmulType::kTf32:
      return kTf32Format;
    case MatmulType::kFp16:
      return kFp16Format;
    case MatmulType::kBf16:
      return kBf16Format;
    case MatmulType::kFp8:
      return kFp8Format;
    case MatmulType::kInt8:
      return kInt8Format;
  }
  throw std::invalid_argument("no such matrix product type");
}

/// One of `sets` matrices that lie behind each other, each on a boundary that suits every algorithm.
class MatrixSet {
 public:
  MatrixSet(Device& device, ElementType type, std::int64_t elements, std::int64_t sets)
      : stride_bytes_((elements * element_bytes(type) + kAlignment - 1) / kAlignment * kAlignment),
        stride_(stride_bytes_ / element_bytes(type)),
        bytes_(device, static_cast<std::size_t>(stride_bytes_ * sets)) {}

  void* at(std::int64_t set) const { return bytes_.data() + set * stride_bytes_; }
  std::int64_t stride() const { return stride_; }
  std::size_t bytes() const { return bytes_.bytes(); }

 private:
  static constexpr std::int64_t kAlignment = 256;
  std::int64_t stride_bytes_;
  std::int64_t stride_;
  DeviceBuffer<std::byte> bytes_;
};

/// How many sets of operands and result it takes to cycle through three times the L2 cache.
std::int64_t sets_for(const Device& device, const Format& format, const MatmulShape& shape) {
  const std::int64_t bytes =
      (shape.m + shape.n) * shape.k * element_bytes(format.input) + shape.m * shape.n * element_bytes(format.output);
  return 3 * static_cast<std::int64_t>(device.l2_bytes()) / bytes + 1;
}

class Deadline {
 public:
  explicit Deadline(double budget_s)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(budget_s))) {}
  bool passed() const { return Clock::now() >= end_; }
  double left_s() const { return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count()); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

constexpr double kSearchWindow_s = 1e-3;

/// Leaves the device idle, so that it can return to its boost clock.
void rest(double rest_s) {
  if (rest_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest_s));
}

/// The parts between separators; a separator at the very end adds none.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <typename T>
T parse_number(const std::string& text, int base) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: '" + text + "'");
  }
  return value;
}

}  // namespace

std::string matmul_type_name(MatmulType type) { return format_of(type).name; }

MatmulType parse_matmul_type(std::string_view name) {
  using enum MatmulType;
  for (const MatmulType type : {kFp32, kTf32, kFp16, kBf16, kFp8, kInt8}) {
    if (name == format_of(type).name) return type;
  }
  throw std::invalid_argument("no such matrix product type: '" + std::string(name) + "'");
}

std::string why_matmul_unsupported(MatmulType type, int architecture) {
  const Format& format = format_of(type);
  if (architecture >= format.least_architecture) return {};
  const auto dotted = [](int number) { return std::to_string(number / 10) + "." + std::to_string(number % 10); };
  return std::string(format.name) + " products need compute capability " + dotted(format.least_architecture) +
         " or later; this device has " + dotted(architecture);
}

std::string to_string(const MatmulShape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

MatmulShape parse_matmul_shape(std::string_view text) {
  const std::vector<std::string> parts = split(text, 'x');
  if (parts.size() != 3 || text.ends_with('x')) {
    throw std::invalid_argument("not a shape <m>x<n>x<k>: '" + std::string(text) + "'");
  }
  const MatmulShape shape{parse_number<std::int64_t>(parts[0], 10), parse_number<std::int64_t>(parts[1], 10),
                          parse_number<std::int64_t>(parts[2], 10)};
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) {
    throw std::invalid_argument("a shape has positive sides: '" + std::string(text) + "'");
  }
  return shape;
}

// Rounding to nearest with unit roundoff u changes a number by a root mean square of u / sqrt(3) * sqrt((1 - 1/4) / (2
// ln 2)) = 0.425 u of itself: uniform within the spacing, the number itself log-uniform between two powers of two. The
// errors of a sum's terms are independent, so the sum has the relative error of one term, in which two operands were
// rounded; then the result is. Twice that is allowed. Partial sums grow with the root of their number, and a rounding
// of each adds up to 0.3 u sqrt(k); three times that is allowed.
double matmul_tolerance(MatmulType type, std::int64_t k) {
  const Format& format = format_of(type);
  constexpr double kRounding = 0.425;
  const double rounded = kRounding * std::hypot(std::sqrt(2.0) * format.input_roundoff, format.output_roundoff);
  return 2 * rounded + std::sqrt(static_cast<double>(k)) * format.sum_roundoff;
}

std::size_t matmul_library_version() { return cublasLtGetVersion(); }

std::string to_string(const MatmulPlan& plan) {
  std::ostringstream text;
  text << to_string(plan.shape) << ' ' << plan.library_version << ' ' << std::hex;
  text.fill('0');
  for (const std::uint64_t word : plan.algorithm) {
    text.width(16);
    text << word;
  }
  return text.str();
}

MatmulPlan parse_matmul_plan(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  const std::vector<std::string> parts = split(text, ' ');
  MatmulPlan plan;
  if (parts.size() != 3 || parts[2].size() != kDigits * plan.algorithm.size()) {
    throw std::invalid_argument("not a matrix product plan: '" + std::string(text) + "'");
  }
  plan.shape = parse_matmul_shape(parts[0]);
  plan.library_version = parse_number<std::size_t>(parts[1], 10);
  for (std::size_t word = 0; word < plan.algorithm.size(); ++word) {
    plan.algorithm[word] = parse_number<std::uint64_t>(parts[2].substr(word * kDigits, kDigits), 16);
  }
  return plan;
}

class Matmul::Impl {
 public:
  Impl(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed)
      : device_(device),
        format_(format_of(type)),
        shape_(shape),
        source_a_{seed, shape.k, format_.data_scale, format_.integers},
        source_b_{seed ^ kSecondOperand, shape.k, format_.data_scale, format_.integers},
        sets_(sets_for(device, format_, shape)),
        operation_(format_.input, format_.output, format_.compute, format_.scale_type, shape),
        a_(device, format_.input, shape.m * shape.k, sets_),
        b_(device, format_.input, shape.n * shape.k, sets_),
        d_(device, format_.output, shape.m * shape.n, sets_),
        workspace_(device, kMatmulWorkspaceBytes),
        descale_(device, 1) {
    if (type == MatmulType::kFp8) use_scales();
    algorithm_ = operation_.candidates(1).front().algo;
    const UniqueStream stream = make_stream();
    fill_normals(a_.at(0), format_.input, source_a_, {0, shape.m, 1}, sets_, a_.stride(), stream.get());
    fill_normals(b_.at(0), format_.input, source_b_, {0, shape.n, 1}, sets_, b_.stride(), stream.get());
    check(cudaStreamSynchronize(stream.get()));
  }

  void use(const MatmulPlan& plan) {
    if (plan.shape != shape_ || plan.library_version != matmul_library_version()) {
      throw std::invalid_argument("the plan is for another shape or version of cuBLASLt");
    }
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
    operation_.check_algorithm(algorithm);
    algorithm_ = algorithm;
  }

  Found search(const Search& search);
  double time_s(double window_s, double rest_s);

  void enqueue(cudaStream_t stream) { check(try_enqueue(algorithm_, stream)); }

  void poison(cudaStream_t stream) { check(cudaMemsetAsync(d_.at(0), 0xFF, d_.bytes(), stream)); }

  double error(cudaStream_t stream);

  Buffers latest() const { return {a_.at(current_), b_.at(current_), d_.at(current_)}; }
  Buffers next() {
    current_ = (current_ + 1) % sets_;
    return latest();
  }

 private:
  struct Timed {
    cublasLtMatmulAlgo_t algorithm;
    double time_s;
  };

  /// The operands hold the originals times a factor; the library divides by it.
  void use_scales() {
    const float descale = 1 / format_.data_scale;
    check(cudaMemcpy(descale_.data(), &descale, sizeof descale, cudaMemcpyHostToDevice));
    // A copy from pageable memory may return before it arrives, and our streams do not wait for the default stream.
    check(cudaStreamSynchronize(nullptr));
    const float* pointer = descale_.data();
    operation_.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointer);
    operation_.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointer);
    operation_.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  }

  cublasStatus_t try_enqueue(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    const Buffers buffers = next();
    return operation_.enqueue(buffers.a, buffers.b, buffers.d, algorithm, workspace_.data(), stream);
  }

  std::optional<double> first_time_s(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);
  double window_time_s(const Timed& candidate, double window_s, cudaStream_t stream);
  double reference_error(const Rows& rows, std::int64_t chunk, cudaStream_t stream);

  Device& device_;
  const Format& format_;
  MatmulShape shape_;
  NormalMatrix source_a_;
  NormalMatrix source_b_;
  std::int64_t sets_;
  std::int64_t current_ = 0;
  LtOperation operation_;
  MatrixSet a_;
  MatrixSet b_;
  MatrixSet d_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<float> descale_;
  cublasLtMatmulAlgo_t algorithm_{};
};

/// Runs a candidate twice, the first time untimed because it may have to load its kernel. Nothing if it will not run.
std::optional<double> Matmul::Impl::first_time_s(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
  if (try_enqueue(algorithm, stream) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  const UniqueEvent start = make_timing_event();
  const UniqueEvent stop = make_timing_event();
  check(cudaEventRecord(start.get(), stream));
  check(try_enqueue(algorithm, stream));
  check(cudaEventRecord(stop.get(), stream));
  check(cudaStreamSynchronize(stream));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, start.get(), stop.get()));
  return static_cast<double>(time_ms) / 1e3;
}

/// Time of one product in a window of about `window_s`, played from a graph so that the host's launches do not limit
/// it.
double Matmul::Impl::window_time_s(const Timed& candidate, double window_s, cudaStream_t stream) {
  constexpr int kMostSteps = 100;
  const int steps = std::clamp(static_cast<int>(std::ceil(window_s / candidate.time_s)), 1, kMostSteps);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (int step = 0; step < steps && status == CUBLAS_STATUS_SUCCESS; ++step) {
    status = try_enqueue(candidate.algorithm, stream);
  }
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const UniqueGraph graph(captured);
  check(status);
  check(ended);
  cudaGraphExec_t instantiated = nullptr;
  check(cudaGraphInstantiate(&instantiated, graph.get(), 0));
  const UniqueGraphExec executable(instantiated);
  check(cudaGraphUpload(executable.get(), stream));

  const UniqueEvent start = make_timing_event();
  const UniqueEvent stop = make_timing_event();
  check(cudaEventRecord(start.get(), stream));
  check(cudaGraphLaunch(executable.get(), stream));
  check(cudaEventRecord(stop.get(), stream));
  check(cudaStreamSynchronize(stream));
  float time_ms = 0;
  check(cudaEventElapsedTime(&time_ms, start.get(), stop.get()));
  return static_cast<double>(time_ms) / 1e3 / steps;
}

Matmul::Found Matmul::Impl::search(const Search& search) {
  constexpr std::size_t kFinalists = 6;
  constexpr int kRounds = 3;
  constexpr double kShort_s = 200e-6;  // below it, one product between two events is too coarse
  const Deadline first_half(search.budget_s / 2);
  const Deadline deadline(search.budget_s);
  const UniqueStream stream = make_stream();
  const auto candidates = operation_.candidates(search.candidates);
  std::vector<Timed> timed;
  std::size_t tried = 0;
  for (const auto& candidate : candidates) {
    if (!timed.empty() && first_half.passed()) break;
    ++tried;
    std::optional<double> time_s = first_time_s(candidate.algo, stream.get());
    if (!time_s) continue;
    if (*time_s < kShort_s) time_s = window_time_s({candidate.algo, *time_s}, kSearchWindow_s, stream.get());
    timed.push_back({candidate.algo, *time_s});
  }
  if (timed.empty()) throw NotSupported("none of cuBLASLt's algorithms runs this type and shape on this device");
  std::ranges::sort(timed, {}, &Timed::time_s);

  // The fastest few are timed again, in turn, so that a drift of the clock meets all of them; the best window counts.
  if (timed.size() > kFinalists) timed.erase(timed.begin() + kFinalists, timed.end());
  const std::vector<Timed> finalists = timed;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < finalists.size() && !deadline.passed(); ++i) {
      rest(search.rest_s);
      const double time_s = window_time_s(finalists[i], kSearchWindow_s, stream.get());
      timed[i].time_s = round == 0 ? time_s : std::min(timed[i].time_s, time_s);
    }
  }
  const Timed best = *std::ranges::min_element(timed, {}, &Timed::time_s);
  algorithm_ = best.algorithm;
  const std::string description = describe_lt_algorithm(best.algorithm) + "; " + std::to_string(tried) + " of " +
                                  std::to_string(candidates.size()) + " candidates timed";
  return {
      {shape_, matmul_library_version(), std::bit_cast<decltype(MatmulPlan::algorithm)>(best.algorithm), description},
      best.time_s};
}

double Matmul::Impl::time_s(double window_s, double rest_s) {
  const UniqueStream stream = make_stream();
  const double step_s = first_time_s(algorithm_, stream.get()).value();
  rest(rest_s);
  return window_time_s({algorithm_, step_s}, window_s, stream.get());
}

double Matmul::Impl::error(cudaStream_t stream) {
  constexpr std::int64_t kWholeElements = 4096 * 4096;
  constexpr std::int64_t kSampledRows = 64;
  constexpr std::int64_t kChunkBytes = 256 << 20;
  const bool whole = shape_.m * shape_.n <= kWholeElements || shape_.m < kSampledRows;
  const Rows rows = whole ? Rows{0, shape_.m, 1} : Rows{0, kSampledRows, shape_.m / kSampledRows};
  const std::int64_t row_bytes = shape_.k * element_bytes(ElementType::kFp64);
  return reference_error(rows, std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, shape_.n), stream);
}

/// `chunk` columns of the product at a time.
double Matmul::Impl::reference_error(const Rows& rows, std::int64_t chunk, cudaStream_t stream) {
  NormalMatrix source_a = source_a_;
  NormalMatrix source_b = source_b_;
  if (!format_.integers) source_a.scale = source_b.scale = 1;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const DeviceBuffer<double> a(device_, size(rows.count * shape_.k));
  const DeviceBuffer<double> b(device_, size(chunk * shape_.k));
  const DeviceBuffer<double> reference(device_, size(rows.count * chunk));
  const DeviceBuffer<double> sums(device_, 2);
  check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), stream));
  fill_normals(a.data(), ElementType::kFp64, source_a, rows, 1, 0, stream);
  for (std::int64_t first = 0; first < shape_.n; first += chunk) {
    const std::int64_t columns = std::min(chunk, shape_.n - first);
    fill_normals(b.data(), ElementType::kFp64, source_b, {first, columns, 1}, 1, 0, stream);
    const LtOperation product(ElementType::kFp64, ElementType::kFp64, CUBLAS_COMPUTE_64F, CUDA_R_64F,
                              {rows.count, columns, shape_.k});
    check(product.enqueue(a.data(), b.data(), reference.data(), product.candidates(1).front().algo, workspace_.data(),
                          stream));
    const auto* data =
        static_cast<const std::byte*>(d_.at(current_)) + first * shape_.m * element_bytes(format_.output);
    add_squared_error({data, format_.output, shape_.m, rows, columns}, reference.data(), sums.data(), stream);
  }
  std::array<double, 2> host_sums{};
  check(cudaMemcpyAsync(host_sums.data(), sums.data(), sums.bytes(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return std::sqrt(host_sums[0] / host_sums[1]);
}

Matmul::Matmul(Device& device, MatmulType type, const MatmulShape& shape, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(device, type, shape, seed)) {}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

void Matmul::use(const MatmulPlan& plan) { impl_->use(plan); }
Matmul::Found Matmul::search(const Search& search) { return impl_->search(search); }
double Matmul::time_s(double window_s, double rest_s) { return impl_->time_s(window_s, rest_s); }
void Matmul::enqueue(cudaStream_t stream) { impl_->enqueue(stream); }
void Matmul::poison(cudaStream_t stream) { impl_->poison(stream); }
double Matmul::error(cudaStream_t stream) { return impl_->error(stream); }
Matmul::Buffers Matmul::latest() const { return impl_->latest(); }
Matmul::Buffers Matmul::next() { return impl_->next(); }

namespace {

/// The `wanted` shapes of the highest rate with the library's first choices of algorithm.
std::vector<MatmulShape> fastest_shapes(Device& device, MatmulType type, std::span<const MatmulShape> shapes,
                                        std::uint64_t seed, double budget_s, std::size_t wanted) {
  struct Candidate {
    MatmulShape shape;
    double flop_rate;
  };
  const Deadline deadline(budget_s);
  std::vector<Candidate> tried;
  for (const MatmulShape& shape : shapes) {
    if (!tried.empty() && deadline.passed()) break;
    try {
      Matmul matmul(device, type, shape, seed);
      const double time_s = matmul.search({budget_s / static_cast<double>(shapes.size()), 0, 4}).time_s;
      tried.push_back({shape, shape.flops() / time_s});
    } catch (const OutOfMemory&) {
      continue;  // a smaller shape may fit
    }
  }
  if (tried.empty()) throw OutOfMemory("no shape of the search fits into the device's memory");
  std::ranges::sort(tried, std::ranges::greater{}, &Candidate::flop_rate);
  tried.resize(std::min(tried.size(), wanted));
  std::vector<MatmulShape> fastest;
  for (const Candidate& candidate : tried) fastest.push_back(candidate.shape);
  return fastest;
}

/// One shape with its best algorithm, and what it reached so far.
struct Finalist {
  Matmul matmul;
  MatmulPlan plan;
  std::vector<double> flop_rates;
};

/// The finalists in turn, in windows like those that count: a short window after no rest favours other shapes.
MatmulPlan play_off(std::vector<Finalist> finalists, bool rested) {
  constexpr int kRounds = 3;
  constexpr double kWindow_s = 3e-3;
  constexpr double kRest_s = 0.03;
  for (int round = 0; round < kRounds; ++round) {
    for (Finalist& finalist : finalists) {
      const double time_s = finalist.matmul.time_s(kWindow_s, rested ? kRest_s : 0);
      finalist.flop_rates.push_back(finalist.plan.shape.flops() / time_s);
    }
  }
  const auto middle = [](Finalist& finalist) {
    std::ranges::sort(finalist.flop_rates);
    return finalist.flop_rates[kRounds / 2];
  };
  return std::ranges::max_element(finalists, {}, middle)->plan;
}

}  // namespace

MatmulPlan find_best_matmul(Device& device, MatmulType type, std::span<const MatmulShape> shapes, std::uint64_t seed,
                            const Matmul::Search& search) {
  constexpr std::size_t kFinalists = 4;
  const Deadline deadline(search.budget_s);
  std::vector<MatmulShape> finalists(shapes.begin(), shapes.end());
  if (shapes.size() > kFinalists)
    finalists = fastest_shapes(device, type, shapes, seed, search.budget_s / 2, kFinalists);
  if (finalists.empty()) throw std::invalid_argument("a search needs at least one shape");

  std::vector<Finalist> played;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const double share_s = deadline.left_s() / static_cast<double>(finalists.size() - i);
    Matmul matmul(device, type, finalists[i], seed);
    MatmulPlan plan = matmul.search({share_s, search.rest_s, search.candidates}).plan;
    played.push_back({std::move(matmul), std::move(plan), {}});
  }
  return play_off(std::move(played), search.rest_s > 0);
}

}  // namespace gpulift
