// gpulift-torch-parity: one forward and backward pass of a workload's model in FP32 or FP64, with weights and a batch
// out of files. Its outputs, loss, gradients and buffers go to another file, for comparison with the same model in
// Python, whose torch.save() and torch.load() write and read them.
#include <torch/serialize.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "workloads/torch/precision.hpp"
#include "workloads/torch/workload.hpp"

namespace gpulift {
namespace {

constexpr int kFailed = 1;

struct Options {
  std::string model;
  std::string weights;
  std::string batch;
  std::string out;
  std::string device = "cpu";
  bool in_fp64 = false;
};

using NamedTensors = std::map<std::string, torch::Tensor>;

NamedTensors load_tensors(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  if (bytes.empty()) throw std::runtime_error(file + " is not there, or empty");
  NamedTensors tensors;
  for (const auto& entry : torch::pickle_load(bytes).toGenericDict()) {
    tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

void save_tensors(const NamedTensors& tensors, const std::string& file) {
  c10::Dict<std::string, torch::Tensor> kept;
  for (const auto& [name, tensor] : tensors) kept.insert(name, tensor.detach().cpu());
  const std::vector<char> bytes = torch::pickle_save(kept);
  std::ofstream stream(file, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream) throw std::runtime_error(file + " cannot be written");
}

/// Parameters and buffers by name, which share the model's memory. A tensor that two modules share is there once, under
/// its first name.
NamedTensors state_of(const Model& model) {
  NamedTensors state;
  std::set<const c10::TensorImpl*> seen;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (seen.insert(item.value().unsafeGetTensorImpl()).second) state.emplace(item.key(), item.value());
    }
  };
  add(model.named_parameters());
  add(model.named_buffers());
  return state;
}

void load_weights(const Model& model, const std::string& file) {
  NamedTensors loaded = load_tensors(file);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state_of(model)) {
    const auto found = loaded.extract(name);
    if (found.empty() || found.mapped().sizes() != tensor.sizes() ||
        found.mapped().scalar_type() != tensor.scalar_type())
      throw std::runtime_error(file + ": tensor " + name + " of the model is missing, or has another shape or type");
    tensor.copy_(found.mapped());
  }
  if (!loaded.empty()) throw std::runtime_error(file + ": tensor " + loaded.begin()->first + " is not in the model");
}

Batch load_batch(const std::string& file, torch::Device device) {
  NamedTensors tensors = load_tensors(file);
  return to_device({tensors.at("input"), tensors.at("target"), tensors["lengths"]}, device);
}

/// "logits" and "loss"; "grad." and the name of a parameter; the names of buffers, as the pass left them.
NamedTensors pass(Model& model, const Batch& batch) {
  use_switches_of(Precision::kFp32);
  NamedTensors results;
  const torch::Tensor loss = model.loss(batch);
  loss.backward();
  results["loss"] = loss;
  for (const auto& [name, tensor] : state_of(model)) {
    if (tensor.grad().defined()) {
      results["grad." + name] = tensor.grad();
    } else {
      results[name] = tensor.clone();
    }
  }
  const torch::NoGradGuard no_grad;
  results["logits"] = model.forward(batch);
  return results;
}

void run(const Options& options) {
  const torch::Device device(options.device);
  Batch batch = load_batch(options.batch, device);
  const auto model = make_workload(options.model, batch.input.size(0)).make_model(torch::kCPU);
  load_weights(*model, options.weights);
  model->to(device);
  if (options.in_fp64) {
    model->to(torch::kFloat64);
    if (batch.input.is_floating_point()) batch.input = batch.input.to(torch::kFloat64);
  }
  use_switches_of(Precision::kFp32);  // no TF32
  save_tensors(pass(*model, batch), options.out);
}

}  // namespace
}  // namespace gpulift

int main(int argc, char** argv) {
  gpulift::Options options;
  CLI::App app("One pass of a model, forward and backward, with weights and data out of files of torch.save()");
  app.add_option("--model", options.model, "The workload's name")
      ->required()
      ->check(CLI::IsMember(gpulift::workload_names()));
  app.add_option("--weights", options.weights, "Parameters and buffers by name")->required();
  app.add_option("--batch", options.batch, "Tensors input, target and, where rows differ, lengths")->required();
  app.add_option("--out", options.out, "Takes logits, loss, grad.<parameter> and buffers")->required();
  app.add_option("--device", options.device, "cpu or cuda")->capture_default_str();
  app.add_flag("--fp64", options.in_fp64, "Compute in FP64: rounding then hides nothing");
  CLI11_PARSE(app, argc, argv);
  try {
    gpulift::run(options);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return gpulift::kFailed;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return gpulift::kFailed;
  }
  return 0;
}
