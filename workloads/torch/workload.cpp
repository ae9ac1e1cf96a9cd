#include "workload.hpp"

#include <torch/nn/functional/loss.h>

#include <map>
#include <stdexcept>

#include "encoder.hpp"
#include "gpt.hpp"
#include "llama.hpp"
#include "lstm.hpp"
#include "mlp.hpp"
#include "mobilenet.hpp"
#include "resnet.hpp"

namespace gpulift {
namespace {

using MakeWorkload = Workload (*)(std::int64_t batch_size);

const std::map<std::string, MakeWorkload>& makers() {
  static const std::map<std::string, MakeWorkload> all{
      {"encoder", encoder_workload},     {"encoder_toy", encoder_toy_workload},
      {"gpt2", gpt2_workload},           {"gpt_small", gpt_small_workload},
      {"gpt_toy", gpt_toy_workload},     {"llama_1b", llama_1b_workload},
      {"llama_toy", llama_toy_workload}, {"lstm", lstm_workload},
      {"lstm_toy", lstm_toy_workload},   {"mlp", mlp_workload},
      {"mobilenet", mobilenet_workload}, {"mobilenet_small", mobilenet_small_workload},
      {"resnet18", resnet18_workload},   {"resnet50", resnet50_workload},
  };
  return all;
}

}  // namespace

Workload make_workload(const std::string& name, std::int64_t batch_size) {
  const auto found = makers().find(name);
  if (found == makers().end()) throw std::invalid_argument("no workload is called " + name);
  Workload workload = found->second(batch_size);
  workload.name = name;
  return workload;
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

Batch rows_of(const Batch& batch, std::int64_t begin, std::int64_t size) {
  return {batch.input.narrow(0, begin, size), batch.target.narrow(0, begin, size),
          batch.lengths.defined() ? batch.lengths.narrow(0, begin, size) : torch::Tensor()};
}

Batch to_device(const Batch& batch, torch::Device device) {
  return {batch.input.to(device), batch.target.to(device),
          batch.lengths.defined() ? batch.lengths.to(device) : torch::Tensor()};
}

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& target) {
  const torch::Tensor rows = logits.reshape({-1, logits.size(-1)}).to(torch::kFloat32);
  return torch::nn::functional::cross_entropy(rows, target.reshape({-1}));
}

}  // namespace gpulift
