#pragma once
// What the formats of matmul_type.hpp are to cuBLASLt and to the data. For the matrix products of this folder.

#include <cublas_api.h>
#include <library_types.h>

#include "kernels/matmul_data.hpp"
#include "workloads/matmul_type.hpp"

namespace gpulift {

struct MatmulFormat {
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

const MatmulFormat& format_of(MatmulType type);

}  // namespace gpulift
