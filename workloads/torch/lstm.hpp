#pragma once

#include <cstdint>

#include "workload.hpp"

namespace gpulift {

/// A language model of two LSTM layers: embedding and hidden state of 512, 10000 symbols, rows of 128 synthetic tokens.
/// On a GPU the layers are cuDNN's; under BF16 autocast they compute in FP16, which is torch's rule for them.
Workload lstm_workload(std::int64_t batch_size);
/// The same with 32 units, 50 symbols and 16 tokens, for tests and hosts.
Workload lstm_toy_workload(std::int64_t batch_size);

}  // namespace gpulift
