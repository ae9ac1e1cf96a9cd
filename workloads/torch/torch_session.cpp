#include "torch_session.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <omp.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/error.hpp"
#include "core/harness/host_limits.hpp"

namespace gpulift {
namespace {

using Work = TorchSession::Work;

const auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingDeviceAllocator::DeviceStats memory_of(torch::Device device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
}

/// What cuBLAS keeps for its handles on each stream until the process ends. Whichever arm comes first would be charged
/// with it.
double workspace_bytes() {
  const auto bytes_of = [](at::cuda::WorkspaceMapWithMutex& workspaces, std::size_t each) {
    const std::shared_lock lock(workspaces.mutex);
    return static_cast<double>(workspaces.map.size() * each);
  };
  return bytes_of(at::cuda::cublas_handle_stream_to_workspace(), at::cuda::getChosenWorkspaceSize()) +
         bytes_of(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize());
}

/// What is in use before an arm is made, without workspaces.
double allocated_bytes_before(torch::Device device) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  return static_cast<double>(memory_of(device).allocated_bytes[kAggregate].current) - workspace_bytes();
}

/// Throws it as one of ours, without its backtrace, which names paths of the build machine. Torch has a type for memory
/// that is exhausted, but where a library of CUDA's or the host's allocator says so, the text alone tells.
[[noreturn]] void throw_ours(const c10::Error& error, torch::Device device) {
  const std::string text = error.what_without_backtrace();
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || says("out of memory") || says("ALLOC_FAILED") ||
      says("can't allocate memory")) {
    if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();  // the next arm may be another process
    throw OutOfMemory(text.substr(0, text.find(" If reserved but ")));  // advice on settings that are not the reader's
  }
  if (says("unable to find an engine") || says("STATUS_NOT_SUPPORTED")) throw NotSupported(text);
  throw std::runtime_error(text);
}

/// Makes the engine's stream torch's current one. On the host there is none.
template <typename Action>
void on_stream(torch::Device device, StreamHandle stream, const Action& action) {
  try {
    if (!device.is_cuda()) return action();
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(stream, device.index()));
    action();
  } catch (const c10::Error& error) {
    throw_ours(error, device);
  }
}

Metrics metrics_of_step(const Work& work, torch::Device device, double before_bytes) {
  c10::cuda::CUDACachingAllocator::emptyCache();  // what the check's own runs left there
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  work();
  check(cudaDeviceSynchronize());
  const auto stats = memory_of(device);
  Metrics metrics;
  if (stats.allocated_bytes[kAggregate].peak > 0) {  // without caching, torch's allocator counts nothing
    // Both less what was in use before: what was reserved then, but free, the arm may use.
    const double others_bytes = before_bytes + workspace_bytes();
    const auto more_than_before = [&](const auto& stat) {
      return std::max(0.0, static_cast<double>(stat[kAggregate].peak) - others_bytes);
    };
    metrics = {{"peak_allocated_bytes", more_than_before(stats.allocated_bytes)},
               {"peak_reserved_bytes", more_than_before(stats.reserved_bytes)}};
  }
  return metrics;
}

torch::Device device_of(Trial& trial) {
  return trial.has_device() ? torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(trial.device().index()))
                            : torch::Device(torch::kCPU);
}

}  // namespace

OpenMpThreads::OpenMpThreads() : before_(omp_get_max_threads()) {}
OpenMpThreads::~OpenMpThreads() { omp_set_num_threads(before_); }

int host_threads() {
  const int cores = allowed_cores(static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, std::min(at::get_num_threads(), cores - 1));
}

TorchSession::TorchSession(Trial& trial) : device_(device_of(trial)) {
  const int threads = on_device() ? 1 : host_threads();  // beside a GPU the host only launches
  at::set_num_threads(threads);
  if (on_device()) {
    at::globalContext().lazyInitDevice(device_.type());  // the allocator knows no device before
    // A workspace that the stream of an earlier graph left may keep a block of gigabytes. No graph lives now.
    at::cuda::clearCublasWorkspaces();
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  at::globalContext().setBenchmarkCuDNN(true);
  trial.version("libtorch", TORCH_VERSION);  // "torch" is that of Python arms
  trial.note("device", on_device() ? "cuda" : "cpu");
  if (!on_device()) trial.note("torch_threads", std::to_string(threads));
}

TorchSession::~TorchSession() {
  if (!on_device()) return;
  try {
    c10::cuda::CUDACachingAllocator::emptyCache();  // the next case may take its memory elsewhere
  } catch (const c10::Error&) {
    return;  // of a broken context nothing can be given back: its case has said so
  }
}

Arm TorchSession::arm(const std::string& name, const std::function<Work()>& make, const ArmOptions& options) const {
  const auto before_bytes = std::make_shared<double>();
  const torch::Device device = device_;
  Arm arm{.name = name, .make = [device, make, before_bytes] {
            if (device.is_cuda()) *before_bytes = allocated_bytes_before(device);
            Work work;
            on_stream(device, nullptr, [&] { work = make(); });
            if (device.is_cuda()) check(cudaDeviceSynchronize());
            return Step([device, work](StreamHandle stream) { on_stream(device, stream, work); });
          }};
  arm.clock = Clock::kUnheld;
  arm.cost = options.cost;
  arm.tolerance = options.tolerance;
  if (!device.is_cuda() && !options.metrics) return arm;
  arm.metrics = [device, before_bytes, more = options.metrics, graph_bytes = options.graph_bytes](const Step& step,
                                                                                                  StreamHandle stream) {
    Metrics metrics;
    on_stream(device, stream, [&] {
      if (device.is_cuda()) metrics = metrics_of_step([&] { step(stream); }, device, *before_bytes);
      if (graph_bytes && metrics.contains("peak_allocated_bytes")) metrics["peak_allocated_bytes"] += graph_bytes();
      if (more) metrics.merge(more());
    });
    return metrics;
  };
  return arm;
}

void TorchSession::run(StreamHandle stream, const std::function<void()>& work) const {
  on_stream(device_, stream, work);
  if (on_device()) check(cudaDeviceSynchronize());
}

}  // namespace gpulift
