#pragma once
// cuBLAS's handle, owned. For the matrix products of this folder.

#include <cublas_v2.h>

#include <memory>

#include "core/cuda/check_cublas.hpp"

namespace gpulift {

struct DestroyCublas {
  void operator()(cublasContext* handle) const noexcept { static_cast<void>(cublasDestroy(handle)); }
};
using UniqueCublas = std::unique_ptr<cublasContext, DestroyCublas>;

inline UniqueCublas make_cublas() {
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle));
  return UniqueCublas(handle);
}

}  // namespace gpulift
