#include "workloads/expert_matmul.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/check_cublas.hpp"
#include "core/cuda/handles.hpp"
#include "kernels/matmul_data.hpp"
#include "workloads/cublas_handle.hpp"
#include "workloads/lt_operation.hpp"
#include "workloads/lt_search.hpp"
#include "workloads/matmul_reference.hpp"

namespace gpulift {
namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// The device's side streams, between what a stream has before and after them.
class Branches {
 public:
  static constexpr std::size_t kCount = 8;

  explicit Branches(Device& device) : device_(device) {
    for (UniqueEvent& joined : joined_) joined = make_ordering_event();
  }
  cudaStream_t at(std::size_t branch) const { return device_.side_stream(branch); }
  void fork(cudaStream_t stream) const {
    check(cudaEventRecord(forked_.get(), stream));
    for (std::size_t branch = 0; branch < kCount; ++branch) check(cudaStreamWaitEvent(at(branch), forked_.get()));
  }
  void join(cudaStream_t stream) const {
    for (std::size_t branch = 0; branch < kCount; ++branch) {
      check(cudaEventRecord(joined_[branch].get(), at(branch)));
      check(cudaStreamWaitEvent(stream, joined_[branch].get()));
    }
  }

 private:
  Device& device_;
  UniqueEvent forked_ = make_ordering_event();
  std::array<UniqueEvent, kCount> joined_;
};

/// The arguments of one grouped call, a group per expert.
class GroupedCall {
 public:
  GroupedCall(Device& device, const Experts& experts, const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* d)
      : count_(experts.tokens.size()),
        rows_(count_, static_cast<int>(experts.features)),
        inputs_(count_, static_cast<int>(experts.inputs)),
        columns_(experts.tokens.begin(), experts.tokens.end()),
        pointers_(device, 3 * count_) {
    std::vector<const void*> pointers(3 * count_);
    for (std::size_t expert = 0; expert < count_; ++expert) {
      pointers[expert] = a;
      pointers[count_ + expert] = b;
      pointers[2 * count_ + expert] = d;
      a += experts.features * experts.inputs;
      b += experts.tokens[expert] * experts.inputs;
      d += experts.tokens[expert] * experts.features;
    }
    check(cudaMemcpy(static_cast<void*>(pointers_.data()), static_cast<const void*>(pointers.data()), pointers_.bytes(),
                     cudaMemcpyHostToDevice));
    check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
  }

  void enqueue(void* workspace, cudaStream_t stream) const {
    check(cublasSetStream(handle_.get(), stream));
    check(cublasSetWorkspace(handle_.get(), workspace, kMatmulWorkspaceBytes));
    const std::vector<cublasOperation_t> transposed(count_, CUBLAS_OP_T);
    const std::vector<cublasOperation_t> plain(count_, CUBLAS_OP_N);
    const std::vector<float> ones(count_, 1);
    const std::vector<float> zeros(count_, 0);
    const std::vector<int> members(count_, 1);
    const void** const pointers = pointers_.data();
    check(cublasGemmGroupedBatchedEx(handle_.get(), transposed.data(), plain.data(), rows_.data(), columns_.data(),
                                     inputs_.data(), ones.data(), pointers, CUDA_R_16BF, inputs_.data(),
                                     pointers + count_, CUDA_R_16BF, inputs_.data(), zeros.data(),
                                     const_cast<void**>(pointers + 2 * count_), CUDA_R_16BF, rows_.data(),
                                     static_cast<int>(count_), members.data(), CUBLAS_COMPUTE_32F));
  }

 private:
  std::size_t count_;
  std::vector<int> rows_;
  std::vector<int> inputs_;
  std::vector<int> columns_;
  DeviceBuffer<const void*> pointers_;
  UniqueCublas handle_ = make_cublas();
};

}  // namespace

std::int64_t Experts::all_tokens() const { return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}); }
std::int64_t Experts::most_tokens() const { return *std::ranges::max_element(tokens); }
double Experts::flops() const { return MatmulShape{features, all_tokens(), inputs}.flops(); }

std::vector<std::int64_t> deal_tokens(std::int64_t experts, std::int64_t tokens, bool evenly) {
  constexpr std::int64_t kEighth = 8;
  if (experts <= 0 || experts % kEighth != 0 || tokens < 2 * experts) {
    throw std::invalid_argument("deal_tokens: a multiple of 8 experts, and two tokens for each");
  }
  const std::int64_t full = experts / kEighth;
  const std::int64_t many = evenly ? tokens / experts : tokens / 2 / full;
  const std::int64_t few = evenly ? many : (tokens - tokens / 2) / (experts - full);
  std::vector<std::int64_t> dealt(size(experts), few);
  for (std::int64_t expert = 0; expert < experts; expert += kEighth) dealt[size(expert)] = many;
  return dealt;
}

std::vector<MatmulShape> searched_shapes(ExpertCalls calls, const Experts& experts) {
  if (calls == ExpertCalls::kGrouped) return {};
  if (calls == ExpertCalls::kBatched) return {{experts.features, experts.most_tokens(), experts.inputs}};
  const std::set<std::int64_t> sizes(experts.tokens.begin(), experts.tokens.end());
  std::vector<MatmulShape> shapes;
  for (const std::int64_t tokens : sizes) shapes.push_back({experts.features, tokens, experts.inputs});
  return shapes;
}

class ExpertMatmul::Impl {
 public:
  Impl(Device& device, ExpertCalls calls, const Experts& experts, std::uint64_t seed)
      : device_(device),
        calls_(calls),
        experts_(experts),
        count_(static_cast<std::int64_t>(experts.tokens.size())),
        weights_{seed, experts.inputs},
        tokens_{seed ^ kSecondMatmulOperand, experts.inputs},
        a_(device, size(count_ * experts.features * experts.inputs)),
        b_(device, size(stored_tokens() * experts.inputs)),
        d_(device, size(stored_tokens() * experts.features)),
        workspaces_(device, (calls == ExpertCalls::kLoopOnStreams ? Branches::kCount : 1) * kMatmulWorkspaceBytes) {
    if (calls == ExpertCalls::kLoopOnStreams) branches_.emplace(device);
    if (calls == ExpertCalls::kGrouped) grouped_.emplace(device, experts, a_.data(), b_.data(), d_.data());
    for (const MatmulShape& shape : searched_shapes(calls, experts)) add_operation(shape);
    fill_normals(a_.data(), ElementType::kBf16, weights_, {0, count_ * experts.features, 1}, 1, 0, nullptr);
    check(cudaMemsetAsync(b_.data(), 0, b_.bytes(), nullptr));
    for (std::int64_t expert = 0, first = 0; expert < count_; first += tokens_of(expert), ++expert) {
      fill_normals(b_of(expert), ElementType::kBf16, tokens_, {first, tokens_of(expert), 1}, 1, 0, nullptr);
    }
    check(cudaStreamSynchronize(nullptr));  // our streams do not wait for it
  }

  MatmulPlan search(const MatmulShape& shape, const MatmulSearch& search) {
    Searched& searched = operations_.at(shape.n);
    std::int64_t next = -1;
    const LtFound found = search_lt(searched.operation.candidates(search.candidates), search,
                                    [&](const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
                                      if (calls_ == ExpertCalls::kBatched)
                                        return try_enqueue(searched.operation, 0, algorithm, stream);
                                      do {
                                        next = (next + 1) % count_;
                                      } while (tokens_of(next) != shape.n);
                                      return try_enqueue(searched.operation, next, algorithm, stream);
                                    });
    searched.algorithm = found.algorithm;
    return {shape, matmul_library_version(), std::bit_cast<decltype(MatmulPlan::algorithm)>(found.algorithm),
            found.description};
  }

  void use(const MatmulPlan& plan) {
    const auto searched = operations_.find(plan.shape.n);
    if (searched == operations_.end() || plan.shape.m != experts_.features || plan.shape.k != experts_.inputs ||
        plan.library_version != matmul_library_version()) {
      throw std::invalid_argument("the plan is for other experts or another version of cuBLASLt");
    }
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
    check(searched->second.operation.check_algorithm(algorithm));
    searched->second.algorithm = algorithm;
  }

  void enqueue(cudaStream_t stream) {
    if (grouped_) return grouped_->enqueue(workspaces_.data(), stream);
    if (branches_) return enqueue_on_branches(stream);
    const std::int64_t calls = calls_ == ExpertCalls::kBatched ? 1 : count_;
    for (std::int64_t call = 0; call < calls; ++call) {
      const std::int64_t tokens = calls_ == ExpertCalls::kBatched ? experts_.most_tokens() : tokens_of(call);
      const Searched& searched = operations_.at(tokens);
      check(try_enqueue(searched.operation, call, searched.algorithm, stream));
    }
  }

  /// Products that run at a time have a workspace each. Every eighth expert may be a full one, see deal_tokens(): eight
  /// such go to eight streams.
  void enqueue_on_branches(cudaStream_t stream) const {
    branches_->fork(stream);
    for (std::int64_t expert = 0; expert < count_; ++expert) {
      const std::size_t branch = size(expert + expert / static_cast<std::int64_t>(Branches::kCount)) % Branches::kCount;
      const Searched& searched = operations_.at(tokens_of(expert));
      check(try_enqueue(searched.operation, expert, searched.algorithm, branches_->at(branch), branch));
    }
    branches_->join(stream);
  }

  void poison(cudaStream_t stream) { check(cudaMemsetAsync(d_.data(), 0xFF, d_.bytes(), stream)); }

  double error(cudaStream_t stream) {
    const std::int64_t sampled = std::min<std::int64_t>(64, experts_.features);
    const std::int64_t stripe = experts_.features / sampled;
    MatmulReference reference(device_, sampled, experts_.most_tokens(), experts_.inputs);
    for (std::int64_t expert = 0, first = 0; expert < count_; first += tokens_of(expert), ++expert) {
      const std::int64_t columns = tokens_of(expert);
      reference.multiply(weights_, {expert * experts_.features, sampled, stripe}, tokens_, {first, columns, 1}, stream);
      reference.compare({d_of(expert), ElementType::kBf16, experts_.features, {0, sampled, stripe}, columns}, stream);
    }
    return reference.error(stream);
  }

 private:
  struct Searched {
    LtOperation operation;
    cublasLtMatmulAlgo_t algorithm;
  };

  void add_operation(const MatmulShape& shape) {
    LtOperation operation(ElementType::kBf16, ElementType::kBf16, CUBLAS_COMPUTE_32F, CUDA_R_32F, shape);
    if (calls_ == ExpertCalls::kBatched) operation.batch(static_cast<std::int32_t>(count_), shape);
    const cublasLtMatmulAlgo_t algorithm = operation.candidates(1).front().algo;
    operations_.emplace(shape.n, Searched{std::move(operation), algorithm});
  }

  std::int64_t tokens_of(std::int64_t expert) const { return experts_.tokens[size(expert)]; }
  std::int64_t stored_tokens() const {
    return calls_ == ExpertCalls::kBatched ? count_ * experts_.most_tokens() : experts_.all_tokens();
  }
  /// Of an expert's tokens among those that are stored.
  std::int64_t first_stored(std::int64_t expert) const {
    if (calls_ == ExpertCalls::kBatched) return expert * experts_.most_tokens();
    return std::accumulate(experts_.tokens.begin(), experts_.tokens.begin() + expert, std::int64_t{0});
  }
  __nv_bfloat16* b_of(std::int64_t expert) const { return b_.data() + first_stored(expert) * experts_.inputs; }
  __nv_bfloat16* d_of(std::int64_t expert) const { return d_.data() + first_stored(expert) * experts_.features; }

  cublasStatus_t try_enqueue(const LtOperation& operation, std::int64_t expert, const cublasLtMatmulAlgo_t& algorithm,
                             cudaStream_t stream, std::size_t workspace = 0) const {
    return operation.enqueue(a_.data() + expert * experts_.features * experts_.inputs, b_of(expert), d_of(expert),
                             algorithm, workspaces_.data() + workspace * kMatmulWorkspaceBytes, stream);
  }

  Device& device_;
  ExpertCalls calls_;
  Experts experts_;
  std::int64_t count_;
  NormalMatrix weights_;
  NormalMatrix tokens_;
  DeviceBuffer<__nv_bfloat16> a_;
  DeviceBuffer<__nv_bfloat16> b_;
  DeviceBuffer<__nv_bfloat16> d_;
  DeviceBuffer<std::byte> workspaces_;
  std::optional<Branches> branches_;
  std::optional<GroupedCall> grouped_;
  std::map<std::int64_t, Searched> operations_;  // by tokens
};

ExpertMatmul::ExpertMatmul(Device& device, ExpertCalls calls, const Experts& experts, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(device, calls, experts, seed)) {}
ExpertMatmul::~ExpertMatmul() = default;

MatmulPlan ExpertMatmul::search(const MatmulShape& shape, const MatmulSearch& search) {
  return impl_->search(shape, search);
}
void ExpertMatmul::use(const MatmulPlan& plan) { impl_->use(plan); }
void ExpertMatmul::enqueue(cudaStream_t stream) { impl_->enqueue(stream); }
void ExpertMatmul::poison(cudaStream_t stream) { impl_->poison(stream); }
double ExpertMatmul::error(cudaStream_t stream) { return impl_->error(stream); }

}  // namespace gpulift
