#include "precision.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>
#include <string>

namespace gpulift {
namespace {

constexpr int kAmpere = 80;
constexpr double kFirstScale = 65536;
constexpr double kGrowth = 2;
constexpr double kBackoff = 0.5;
constexpr std::int64_t kGrowthInterval = 2000;

bool casts(Precision precision) { return precision == Precision::kFp16 || precision == Precision::kBf16; }

}  // namespace

Precision precision_named(const std::string& name) {
  if (name == "fp32") return Precision::kFp32;
  if (name == "tf32") return Precision::kTf32;
  if (name == "fp16") return Precision::kFp16;
  if (name == "bf16") return Precision::kBf16;
  if (name == "pure_bf16") return Precision::kPureBf16;
  throw std::invalid_argument("no precision is called " + name);
}

std::string roof_of(Precision precision, torch::Device device) {
  const std::string family = device.is_cuda() ? "gemm/" : "host_gemm/";
  switch (precision) {
    case Precision::kFp32:
      return family + "fp32";
    case Precision::kTf32:
      return family + (device.is_cuda() ? "tf32" : "fp32");
    case Precision::kFp16:
      return family + "fp16";
    case Precision::kBf16:
    case Precision::kPureBf16:
      return family + "bf16";
  }
  throw std::logic_error("a precision without a roof");
}

bool host_multiplies_in(Precision precision) {
  if (precision == Precision::kFp32 || precision == Precision::kTf32) return true;
  if (!at::hasMKLDNN()) return false;
  const char* asked =
      precision == Precision::kFp16 ? "mkldnn::_is_mkldnn_fp16_supported" : "mkldnn::_is_mkldnn_bf16_supported";
  return c10::Dispatcher::singleton().findSchemaOrThrow(asked, "").typed<bool()>().call();
}

std::string why_not_in(Precision precision, int architecture) {
  if (precision == Precision::kFp32 || precision == Precision::kFp16 || architecture >= kAmpere) return "";
  const auto dotted = [](int number) { return std::to_string(number / 10) + "." + std::to_string(number % 10); };
  return "products of this format need compute capability " + dotted(kAmpere) + " or later; this device has " +
         dotted(architecture);
}

void use_switches_of(Precision precision) {
  const auto wanted = precision == Precision::kTf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  auto& context = at::globalContext();
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, wanted);
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV, wanted);
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::RNN, wanted);
}

Autocast::Autocast(Precision precision, torch::Device device)
    : device_(device.type()),
      was_enabled_(at::autocast::is_autocast_enabled(device_)),
      was_dtype_(at::autocast::get_autocast_dtype(device_)) {
  at::autocast::set_autocast_enabled(device_, casts(precision));
  if (casts(precision)) {
    at::autocast::set_autocast_dtype(device_, precision == Precision::kFp16 ? torch::kFloat16 : torch::kBFloat16);
  }
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

GradScaler::GradScaler(torch::Device device)
    : scale_(torch::full({}, kFirstScale, torch::TensorOptions(device))),
      growth_steps_(torch::zeros({}, torch::TensorOptions(device).dtype(torch::kInt32))),
      found_inf_(torch::zeros({}, torch::TensorOptions(device))) {}

void GradScaler::unscale(const std::vector<torch::Tensor>& gradients) {
  found_inf_.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_,
                                                 scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32));
}

void GradScaler::update() {
  at::_amp_update_scale_(scale_, growth_steps_, found_inf_, kGrowth, kBackoff, kGrowthInterval);
}

}  // namespace gpulift
