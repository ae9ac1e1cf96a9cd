#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>

#include "core/harness/technique.hpp"

namespace gpulift {

/// Gives OpenMP's threads back at the end of its life: torch shares them with all other cases of the process.
class OpenMpThreads {
 public:
  OpenMpThreads();
  ~OpenMpThreads();
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

/// How many threads work on a host without a GPU. A core stays free, since threads that wait for one another stall when
/// one of them is preempted; OMP_NUM_THREADS may ask for fewer.
int host_threads();

/// LibTorch's side of one case: its device is the engine's, or the host where there is no GPU.
class TorchSession {
 public:
  /// Fixes the number of host threads for as long as it lives, lets cuDNN search its convolutions, and notes both with
  /// the versions.
  explicit TorchSession(Trial& trial);
  /// Gives back the device memory that torch caches.
  ~TorchSession();
  TorchSession(const TorchSession&) = delete;
  TorchSession& operator=(const TorchSession&) = delete;

  torch::Device device() const { return device_; }
  bool on_device() const { return device_.is_cuda(); }

  /// One step; it enqueues on torch's current stream, which is the engine's.
  using Work = std::function<void()>;
  struct ArmOptions {
    std::optional<Cost> cost = {};
    std::optional<double> tolerance = {};
    std::function<double()> graph_bytes = {};  // more at the peak than torch's allocator sees: it sees no replay
    std::function<Metrics()> metrics = {};     // more of the arm's own; may take steps, must wait for them
  };
  /// An arm judged by device events as its steps are issued, on a host by the wall clock, with its memory as metrics:
  /// beyond what was in use before, and without cuBLAS's workspaces, which are the process's.
  /// `make` allocates and returns its step.
  Arm arm(const std::string& name, const std::function<Work()>& make, const ArmOptions& options) const;

  /// Runs work of a check on the engine's stream and waits for it. As steps of arms do, throws OutOfMemory,
  /// NotSupported where a library has no kernel for such work, or else std::runtime_error with torch's text.
  void run(StreamHandle stream, const std::function<void()>& work) const;

 private:
  OpenMpThreads threads_;
  torch::Device device_;
};

}  // namespace gpulift
