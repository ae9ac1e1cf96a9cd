#include "check_cublas.hpp"

#include <cublasLt.h>

namespace gpulift {

void check(cublasStatus_t status, const std::source_location& place) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text =
      describe_failure("cuBLAS", cublasLtGetStatusName(status), cublasLtGetStatusString(status), place);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) throw NotSupported(text);
  throw Error(text);
}

}  // namespace gpulift
