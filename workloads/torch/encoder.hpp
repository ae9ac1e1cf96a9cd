#pragma once

#include <cstdint>

#include "workload.hpp"

namespace gpulift {

/// BERT-base with its masked-LM head (J. Devlin et al., arXiv:1810.04805), named as Hugging Face's BertForMaskedLM,
/// without dropout. 8 batches of synthetic tokens take turns, each padded to its longest row; lengths are log-normal
/// (mean 180, sigma 0.6, clipped to 16..512) and the same in every run.
Workload encoder_workload(std::int64_t batch_size);
/// The same with 2 layers of 32, 100 symbols and lengths around 12 (4..24), for tests and hosts.
Workload encoder_toy_workload(std::int64_t batch_size);

}  // namespace gpulift
