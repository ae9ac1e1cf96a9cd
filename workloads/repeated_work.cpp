#include "workloads/repeated_work.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "core/cuda/check.hpp"

namespace gpulift {

double RepeatCheck::error(const RepeatedWork& work, std::int64_t repeats, StreamHandle stream) const {
  if (work.result_bytes > first_.bytes()) throw std::invalid_argument("RepeatCheck: the result is too large");
  check(cudaMemcpyAsync(first_.data(), work.result(), work.result_bytes, cudaMemcpyDeviceToDevice, stream));
  double different = 0;
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    work.poison(stream);
    work.step(stream);
    different += verifier_.different_bytes(work.result(), first_.data(), work.result_bytes, stream);
  }
  return different + work.fault(stream);
}

}  // namespace gpulift
