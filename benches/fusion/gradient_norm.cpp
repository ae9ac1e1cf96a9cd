#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
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
#include "workloads/replayed.hpp"

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
      gpulift::square_sum_reference(all[t], exact.data() + t, nullptr);
    }
    gpulift::square_sum_reference({data.data(), data.size()}, exact.data() + tensors(), nullptr);
    list = std::make_unique<DeviceBuffer<gpulift::NormedTensor>>(upload(device, all));
    std::vector<double> roots(norms.size());
    check(cudaMemcpy(roots.data(), exact.data(), exact.bytes(), cudaMemcpyDeviceToHost));
    for (double& root : roots) root = std::sqrt(root);
    expected = std::make_unique<DeviceBuffer<double>>(upload(device, roots));
    check(cudaDeviceSynchronize());
  }

  std::size_t tensors() const { return starts.size() - 1; }
  void take(StreamHandle stream) const {
    square_sums(list->data(), pieces.data(), pieces.size(), sums.data(), stream);
    gpulift::roots_of_sums(sums.data(), first_on_device.data(), tensors(), norms.data(), stream);
    gpulift::norm_of_norms(norms.data(), tensors(), norms.data() + tensors(), stream);
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
      {.meaning =
           "relative error of each norm against FP64; of torch's arms, of the total, and how many tensors it lacks",
       .poison = [&](StreamHandle stream) { check(cudaMemsetAsync(norms.data(), 0xFF, norms.bytes(), stream)); },
       .error =
           [&](StreamHandle stream) {
             return gradients.verifier.max_relative_error(norms.data(), gradients.expected->data(), norms.size(), 1e-6,
                                                          stream);
           },
       .tolerance = 1e-5});
  const auto together = [&] { return gpulift::replayed([&](StreamHandle stream) { gradients.take(stream); }); };
  trial.compare({gpulift::python_arm("torch"),
                 {.name = "together", .make = together, .clock = gpulift::Clock::kUnheld},
                 gpulift::python_arm("compiled"),
                 gpulift::python_arm("one_by_one")});
}

gpulift::Point case_of(const char* model) { return {{"model", model}}; }

}  // namespace

const gpulift::Technique gpulift::technique{
    .question =
        "How fast is the norm of all gradients, by torch's foreach and by a kernel that reads all in one launch?",
    .expectation = R"(
        Kernels are compared: all arms replay them as a graph. Bytes and launches decide. The 148 gradients of
        GPT-2 124M in BF16 are 0.249 GB, which an H200 that reads 4.5 TB/s passes in 55 us. torch's get_total_norm takes
        them by foreach in launches of 320 blocks, each of 65536 numbers: 7, each too few blocks to keep the device busy
        and done before the next begins, so 0.58 of that pace, 96 us, and behind them two launches for the norms of
        tensors, two to stack them and one for theirs, 2 to 3 us each: 110 us. Together is three launches (sums of
        squares in pieces of 16384, roots, norm of all) and reads at 0.82 of the pace: 68 us, 1.6. The compiler leaves
        foreach's norms to torch, and fuses what follows them: 1.05. One by one is torch's other way, a control: 98
        small tensors of 2 us each, 48 matrices of 3 to 5 and 25 for the table of tokens, 0.4 ms: 0.27. The 9 gradients
        of a layer of Llama 8B are 0.436 GB: 11 launches and the rest, 180 us; together 118, 1.5; one by one 9 kernels
        that fill the device, 160: 1.1. torch's norms of tensors are BF16 as the gradients are, and so is that of all;
        ours are FP32.)",
    .predict = {{.arm = "torch", .cases = case_of("gpt2"), .on = "h200", .step_time_s = {{90e-6, 135e-6}}},
                {.arm = "torch", .cases = case_of("llama_8b_layer"), .on = "h200", .step_time_s = {{145e-6, 220e-6}}},
                {.arm = "together", .cases = case_of("gpt2"), .on = "nvidia-h", .speedup = {{1.3, 2.0}}},
                {.arm = "together", .cases = case_of("llama_8b_layer"), .on = "nvidia-h", .speedup = {{1.25, 1.9}}},
                {.arm = "compiled", .on = "nvidia-h", .speedup = {{0.95, 1.2}}},
                {.arm = "one_by_one", .cases = case_of("gpt2"), .on = "nvidia-h", .speedup = {{0.2, 0.35}}},
                {.arm = "one_by_one", .cases = case_of("llama_8b_layer"), .on = "nvidia-h", .speedup = {{0.85, 1.4}}}},
    .found = R"(
        An H200, GPT-2: compiled takes 266 to 270 us, not the 103 to 131 that were expected of torch's 124. The
        compiler leaves foreach's norms to torch, as expected, and then copies each to its place in one vector by a
        kernel of its own: it launches such copies together for inputs of the graph alone (ConcatKernel in
        torch/_inductor/ir.py, read and not profiled). 148 copies of 1 us are the 144 us between them, and Llama's 9
        the 7 to 10 us that compiled loses there.)",
    .arms = {"torch", "together", "compiled", "one_by_one"},
    .controls = {"one_by_one"},
    .python = {"torch", "compiled", "one_by_one"},
    .l2 = gpulift::Cache::kBySize,
    .page_cache = gpulift::Cache::kNone,
    .sweep = {{"model", {"gpt2", "llama_8b_layer"}}},
    .quick = {},  // three interpreters that load torch for each case and launch
    .run = run,
};
