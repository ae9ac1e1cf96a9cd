#pragma once
// Weights in files that Python reads too: the safetensors format (https://github.com/huggingface/safetensors).

#include <torch/torch.h>

#include <map>
#include <string>

#include "model.hpp"

namespace gpulift {

using NamedTensors = std::map<std::string, torch::Tensor>;

/// Writes the tensors, from wherever they lie. Throws std::runtime_error, which names the tensor or the file.
void save_tensors(const NamedTensors& tensors, const std::string& file);
/// All tensors of a file, on the host. Throws std::runtime_error for one that is cut short or contradicts itself, and
/// names the tensor.
NamedTensors load_tensors(const std::string& file);

/// Parameters and buffers by name, which share the model's memory. A tensor that two modules share is there once, under
/// its first name.
NamedTensors state_of(const Model& model);
void save_weights(const Model& model, const std::string& file);
/// Throws std::runtime_error where a tensor is missing, unknown to the model, or of another shape or type; the model is
/// then as it was.
void load_weights(Model& model, const std::string& file);

}  // namespace gpulift
