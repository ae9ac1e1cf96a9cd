#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace gpulift {

/// Which blocks of a model forget their activations after the forward pass, and compute them again in the backward one
/// (T. Chen et al., arXiv:1604.06174).
enum class Checkpointing {
  kNone,
  kEveryBlock,
  kSelective,  // every second block, from the first on: half the saving for half the work
};

/// Whether a policy recomputes the block with this index.
bool recomputes(Checkpointing policy, std::int64_t block);

/// A model whose blocks can be checkpointed.
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;
  virtual void use_checkpointing(Checkpointing policy) = 0;
};

/// What a block draws from torch's generators.
enum class Randomness {
  kRepeated,  // the second run draws what the first drew; cannot be captured in a graph
  kNone,      // nothing: their states are not kept
};

/// block(input), of which only the input is kept: the backward pass runs the block again, with the autocast of the
/// first run. The gradients are those of block(input), bit for bit where its kernels repeat. `input` must require a
/// gradient, or the block's parameters get none.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& block, const torch::Tensor& input,
                         Randomness randomness = Randomness::kRepeated);

}  // namespace gpulift
