#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cub/device/device_segmented_reduce.cuh>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "core/cuda/buffer.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/harness/technique.hpp"
#include "kernels/fill.hpp"
#include "kernels/square_sums.hpp"
#include "kernels/verify.hpp"
#include "workloads/memory_roof.hpp"
#include "workloads/model_tensors.hpp"

namespace {

using gpulift::check;
using gpulift::DeviceBuffer;
using gpulift::StreamHandle;

template <typename T>
DeviceBuffer<T> upload(gpulift::Device& device, const std::vector<T>& values) {
  DeviceBuffer<T> data(device, values.size());
  check(cudaMemcpy(data.data(), values.data(), data.bytes(), cudaMemcpyHostToDevice));
  check(cudaStreamSynchronize(nullptr));  // from pageable memory it may return early, and steps' streams do not wait
  return data;
}

/// Where each range of so many begins, and where the last one ends.
std::vector<std::size_t> starts_of(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> starts(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), starts.begin() + 1);
  return starts;
}

__global__ void add_squares(const __nv_bfloat16* data, std::size_t count, double* sum) {
  double own = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const auto value = static_cast<double>(__bfloat162float(data[i]));
    own += value * value;
  }
  atomicAdd(sum, own);
}

struct Square {
  __host__ __device__ float operator()(__nv_bfloat16 value) const {
    return __bfloat162float(value) * __bfloat162float(value);
  }
};

/// Gradients behind one another, and a norm of each, behind which stands that of all.
struct Gradients {
  Gradients(gpulift::Device& of, const std::vector<std::size_t>& counts, std::uint64_t seed)
      : device(of),
        starts(starts_of(counts)),
        first(starts_of(gpulift::pieces_of_tensors(counts, gpulift::kSquaresPiece))),
        data(device, starts.back()),
        pieces(upload(device, gpulift::cut_tensors(counts, gpulift::kSquaresPiece))),
        first_on_device(upload(device, first)),
        sums(device, first.back()),
        norms(device, tensors() + 1),
        verifier(device) {
    gpulift::fill_normal(data.data(), data.size(), seed, nullptr, 1e-3F);
    std::vector<gpulift::NormedTensor> all;
    const DeviceBuffer<double> exact(device, norms.size());
    check(cudaMemset(exact.data(), 0, exact.bytes()));
    for (std::size_t t = 0; t < tensors(); ++t) {
      all.push_back({data.data() + starts[t], counts[t]});
      add_squares<<<64, 256>>>(all[t].data, counts[t], exact.data() + t);
    }
    add_squares<<<64, 256>>>(data.data(), data.size(), exact.data() + tensors());
    list = std::make_unique<DeviceBuffer<gpulift::NormedTensor>>(upload(device, all));
    std::vector<double> roots(norms.size());
    check(cudaMemcpy(roots.data(), exact.data(), exact.bytes(), cudaMemcpyDeviceToHost));
    for (double& root : roots) root = std::sqrt(root);
    expected = std::make_unique<DeviceBuffer<double>>(upload(device, roots));
    check(cudaDeviceSynchronize());
  }

  std::size_t tensors() const { return starts.size() - 1; }
  float* norm() const { return norms.data() + tensors(); }
  /// The norms of `count` tensors from `tensor` on.
  void take(std::size_t tensor, std::size_t count, StreamHandle stream) const {
    square_sums(list->data(), pieces.data() + first[tensor], first[tensor + count] - first[tensor],
                sums.data() + first[tensor], stream);
    gpulift::roots_of_sums(sums.data(), first_on_device.data() + tensor, count, norms.data() + tensor, stream);
  }
  gpulift::Step each() const {
    return [this](StreamHandle stream) {
      for (std::size_t t = 0; t < tensors(); ++t) take(t, 1, stream);
      gpulift::norm_of_norms(norms.data(), tensors(), norm(), stream);
    };
  }
  gpulift::Step read_each() const {
    const auto host = std::make_shared<gpulift::PinnedBuffer<float>>(device, norms.size());
    return [this, host](StreamHandle stream) {
      double sum = 0;
      for (std::size_t t = 0; t < tensors(); ++t) {
        take(t, 1, stream);
        float* const read = host->data() + t;
        check(cudaMemcpyAsync(read, norms.data() + t, sizeof(float), cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
        sum += double{*read} * double{*read};
      }
      host->data()[tensors()] = static_cast<float>(std::sqrt(sum));
      check(cudaMemcpyAsync(norm(), host->data() + tensors(), sizeof(float), cudaMemcpyHostToDevice, stream));
    };
  }
  gpulift::Step together() const {
    return [this](StreamHandle stream) {
      take(0, tensors(), stream);
      gpulift::norm_of_norms(norms.data(), tensors(), norm(), stream);
    };
  }
  gpulift::Step library() const {
    const auto begins = std::make_shared<DeviceBuffer<std::size_t>>(upload(device, starts));
    const auto own_sums = std::make_shared<DeviceBuffer<float>>(device, tensors());
    std::vector<std::size_t> counting(tensors() + 1);
    std::iota(counting.begin(), counting.end(), std::size_t{0});
    const auto one_each = std::make_shared<DeviceBuffer<std::size_t>>(upload(device, counting));
    const auto sum = [=, this](void* workspace, std::size_t& bytes, StreamHandle stream) {
      check(cub::DeviceSegmentedReduce::Sum(workspace, bytes, thrust::make_transform_iterator(data.data(), Square{}),
                                            own_sums->data(), static_cast<int>(tensors()), begins->data(),
                                            begins->data() + 1, stream));
    };
    std::size_t bytes = 0;
    sum(nullptr, bytes, nullptr);
    const auto workspace = std::make_shared<DeviceBuffer<std::byte>>(device, std::max<std::size_t>(bytes, 1));
    return [=, this](StreamHandle stream) mutable {
      sum(workspace->data(), bytes, stream);
      gpulift::roots_of_sums(own_sums->data(), one_each->data(), tensors(), norms.data(), stream);
      gpulift::norm_of_norms(norms.data(), tensors(), norm(), stream);
    };
  }

  gpulift::Device& device;
  std::vector<std::size_t> starts;  // of the tensors in the data
  std::vector<std::size_t> first;   // piece of each tensor
  DeviceBuffer<__nv_bfloat16> data;
  DeviceBuffer<gpulift::TensorPiece> pieces;
  DeviceBuffer<std::size_t> first_on_device;
  DeviceBuffer<float> sums, norms;
  gpulift::Verifier verifier;
  std::unique_ptr<DeviceBuffer<gpulift::NormedTensor>> list;
  std::unique_ptr<DeviceBuffer<double>> expected;
};

void run(gpulift::Trial& trial) {
  const Gradients gradients(trial.device(), gpulift::model_tensors(trial.word("model")), trial.seed());
  const DeviceBuffer<float>& norms = gradients.norms;
  const auto bytes = static_cast<double>(gradients.data.bytes());
  trial.cost({.bytes = bytes, .roof = gpulift::memory_roof(gradients.device.l2_bytes(), bytes)});
  trial.check(
      {.meaning = "relative error of each norm against FP64",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(norms.data(), 0xFF, norms.bytes(), stream)); },
       .error =
           [&](StreamHandle stream) {
             return gradients.verifier.max_relative_error(norms.data(), gradients.expected->data(), norms.size(), 1e-6,
                                                          stream);
           },
       .tolerance = 1e-5});
  const auto arm = [&](const char* name, gpulift::Step (Gradients::*make)() const) {
    return gpulift::Arm{.name = name,
                        .make = [&gradients, make]() -> gpulift::Work { return std::invoke(make, gradients); },
                        .clock = gpulift::Clock::kHost};
  };
  trial.compare({arm("together", &Gradients::together), arm("cub", &Gradients::library),
                 arm("launch_a_tensor", &Gradients::each), arm("read_each", &Gradients::read_each)});
}

}  // namespace

const gpulift::Technique gpulift::technique{
    .question = "What does it cost to take the norms of all gradients: together, by the library, or one by one?",
    .expectation = R"(
        Bytes and launches. The 148 gradients of GPT-2 124M in BF16 are 0.249 GB, on an H100 that reads 3.0 TB/s 83 us.
        Together, as torch's foreach takes them, they are three launches (sums of squares, roots, norm of all): some 92
        us. CUB's segmented reduction gives a tensor to one block, which takes 1 ms and more for the 77 MB of the token
        table: 0.08 times the speed. The others are controls. One by one they take 297 launches of 2.5 to 3 us: 0.8 to
        0.9 ms, 9 times as long. Reading each norm back adds some 12 us a tensor: 2.7 ms, 30 times. The small model's
        52 gradients are 1.75 MB: 105 launches of 3 us against three, 25 times as long; CUB's largest is 131 kB, some 4
        us, 0.8 times the speed.)",
    .predict = {{.arm = "together", .cases = {{"model", "gpt2"}}, .on = "h100", .step_time_s = {{82.8e-6, 101e-6}}},
                {.arm = "cub", .cases = {{"model", "gpt2"}}, .on = "h100", .speedup = {{0.07, 0.0856}}},
                {.arm = "launch_a_tensor", .cases = {{"model", "gpt2"}}, .on = "h100", .speedup = {{0.1, 0.122}}},
                {.arm = "read_each", .cases = {{"model", "gpt2"}}, .on = "h100", .speedup = {{0.03, 0.0367}}},
                {.arm = "cub", .cases = {{"model", "small"}}, .on = "h100", .speedup = {{0.72, 0.88}}},
                {.arm = "launch_a_tensor", .cases = {{"model", "small"}}, .on = "h100", .speedup = {{0.036, 0.044}}}},
    .claims = {},
    .arms = {"together", "cub", "launch_a_tensor", "read_each"},
    .controls = {"launch_a_tensor", "read_each"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt2", "small"}}},
    .quick = {{{"model", "small"}}},
    .run = run,
};
