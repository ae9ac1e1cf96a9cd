#include "safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

namespace gpulift {
namespace {

using ::testing::HasSubstr;

struct Layer : torch::nn::Module {
  explicit Layer(const torch::Tensor& weight) {
    register_parameter("weight", weight);
    register_parameter("bias", torch::randn(3));
  }
};

/// Two layers and a buffer; the second layer's weight may be the first's.
class Pair : public Model {
 public:
  explicit Pair(bool tied = false) {
    const torch::Tensor weight = torch::randn({3, 3});
    register_module("first", std::make_shared<Layer>(weight));
    register_module("second", std::make_shared<Layer>(tied ? weight : torch::randn({3, 3})));
    register_buffer("count", torch::tensor(std::int64_t{7}));
  }
  torch::Tensor forward(const Batch& batch) override { return batch.input; }
  torch::Tensor loss(const Batch& batch) override { return batch.input.sum(); }
};

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() { torch::manual_seed(1); }
  ~Safetensors() override { std::filesystem::remove(file_); }

  void write(const std::string& header, const std::string& data) const {
    const std::uint64_t size = header.size();
    std::ofstream stream(file_, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(&size), sizeof size);
    stream << header << data;
  }
  std::string written() const {
    std::ifstream stream(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void overwrite(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string load_message() const {
    return message_of([this] { load_tensors(file_); });
  }

  const std::string file_ =
      (std::filesystem::temp_directory_path() / ("gpulift_" + std::to_string(getpid()) + ".safetensors")).string();
};

TEST_F(Safetensors, BringsBackEveryTypeAndShape) {
  const NamedTensors tensors{{"bf16", torch::randn({2, 3}).to(torch::kBFloat16)},
                             {"bool", torch::tensor({true, false, true})},
                             {"empty", torch::empty({0, 4})},
                             {"f16", torch::randn({5}).to(torch::kFloat16)},
                             {"f32", torch::randn({3, 4}).t()},
                             {"f64", torch::randn({2}, torch::kFloat64)},
                             {"i64", torch::arange(6)},
                             {"scalar", torch::tensor(2.5)},
                             {"u8", torch::arange(3, torch::kUInt8)}};
  save_tensors(tensors, file_);
  const NamedTensors loaded = load_tensors(file_);
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(loaded.at(name), tensor)) << name;
  }
}

TEST_F(Safetensors, StartsWithALittleEndianLengthAndJsonOnAnEightByteBoundary) {
  save_tensors({{"a", torch::tensor({1.0F})}}, file_);
  const std::string bytes = written();
  const std::size_t size = static_cast<unsigned char>(bytes[0]);
  EXPECT_EQ(bytes.size(), 8 + size + sizeof(float));
  EXPECT_EQ(size % 8, 0U);
  EXPECT_THAT(bytes.substr(8, size), HasSubstr(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"));
}

TEST_F(Safetensors, GivesAModelTheWeightsOfAnother) {
  Pair from, to;
  {
    const torch::NoGradGuard no_grad;
    from.named_buffers()["count"].fill_(9);
  }
  save_weights(from, file_);
  load_weights(to, file_);
  const NamedTensors expected = state_of(from);
  for (const auto& [name, tensor] : state_of(to)) EXPECT_TRUE(torch::equal(tensor, expected.at(name))) << name;
  EXPECT_EQ(expected.size(), 5U);
  EXPECT_TRUE(to.parameters()[0].requires_grad());
}

TEST_F(Safetensors, SavesATiedWeightOnceAndLoadsItForBoth) {
  Pair from(true), to(true);
  save_weights(from, file_);
  EXPECT_EQ(load_tensors(file_).count("second.weight"), 0U);
  load_weights(to, file_);
  EXPECT_TRUE(torch::equal(to.named_parameters()["second.weight"], from.named_parameters()["first.weight"]));
}

TEST_F(Safetensors, RefusesWeightsThatDoNotFitTheModelAndLeavesItAsItWas) {
  const Pair other;
  Pair model;
  const auto complaint = [&](const std::string& name, const torch::Tensor& tensor) {
    NamedTensors tensors = state_of(other);
    if (tensor.defined()) {
      tensors[name] = tensor;
    } else {
      tensors.erase(name);
    }
    save_tensors(tensors, file_);
    const torch::Tensor before = model.parameters()[0].detach().clone();
    const std::string message = message_of([&] { load_weights(model, file_); });
    EXPECT_TRUE(torch::equal(before, model.parameters()[0]));
    return message;
  };
  EXPECT_THAT(complaint("second.bias", {}), HasSubstr("tensor second.bias of the model is missing"));
  EXPECT_THAT(complaint("third", torch::zeros(1)), HasSubstr("tensor third is not in the model"));
  EXPECT_THAT(complaint("second.weight", torch::zeros({3, 4})),
              HasSubstr("tensor second.weight has the shape [3, 4], the model's is [3, 3]"));
  EXPECT_THAT(complaint("second.weight", torch::zeros({3, 3}, torch::kFloat64)),
              HasSubstr("tensor second.weight has the type Double, the model's is Float"));
}

TEST_F(Safetensors, NamesTheTensorWhoseBytesDoNotFit) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string four(4, 'x');
  write("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", four + "xx");
  EXPECT_THAT(load_message(), HasSubstr("tensor b overlaps another"));
  write("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", four + four + four);
  EXPECT_THAT(load_message(), HasSubstr("tensor b lies behind bytes of no tensor"));
  write("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", four + "xx");
  EXPECT_THAT(load_message(), HasSubstr("tensor b lies behind the end of the file, which was cut short"));
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four);
  EXPECT_THAT(load_message(), HasSubstr("tensor a has a shape that does not take the bytes that it is given"));
  write(R"({"a":{"dtype":"F32","shape":[4611686018427387904, 4],"data_offsets":[0,0]}})", "");
  EXPECT_THAT(load_message(), HasSubstr("tensor a has a shape"));
  write(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", four);
  EXPECT_THAT(load_message(), HasSubstr("tensor a has the type F4, which is not known here"));
  write(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", four);
  EXPECT_THAT(load_message(), HasSubstr("tensor a lacks dtype, shape or data_offsets"));
  write("{" + a + "}", four + "x");
  EXPECT_THAT(load_message(), HasSubstr("has bytes behind its last tensor"));
}

TEST_F(Safetensors, RefusesWhatIsNoSuchFile) {
  EXPECT_THAT(load_message(), HasSubstr("cannot be read"));
  overwrite("short");
  EXPECT_THAT(load_message(), HasSubstr("fewer than 8 bytes"));
  overwrite("a text that is long enough");
  EXPECT_THAT(load_message(), HasSubstr("its header would take"));
  write("[1]", "");
  EXPECT_THAT(load_message(), HasSubstr("its header is no JSON object"));
  write("{\"a\":", "");
  EXPECT_THAT(load_message(), HasSubstr("its header is no JSON object"));
  EXPECT_THAT(message_of([] { save_tensors({}, "/no/such/folder/file"); }), HasSubstr("file: cannot be written"));
}

TEST_F(Safetensors, LeavesMetadataAside) {
  write(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "\x05");
  const NamedTensors loaded = load_tensors(file_);
  ASSERT_EQ(loaded.size(), 1U);
  EXPECT_EQ(loaded.at("a").item<int>(), 5);
}

}  // namespace
}  // namespace gpulift
