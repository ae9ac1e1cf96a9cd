#include "environment.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>
#include <vector>

namespace gpulift {
namespace {

class EnvironmentFacts : public testing::Test {
 protected:
  ~EnvironmentFacts() override {
    for (const auto& name : names_) unsetenv(name.c_str());
  }

  /// Until the test ends.
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(EnvironmentFacts, HasOnlyWhatIsListed) {
  set("CUDA_MODULE_LOADING", "EAGER");
  set("GPULIFT_SECRET", "42");
  const auto facts = environment_facts();
  EXPECT_EQ(facts.at("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_FALSE(facts.contains("GPULIFT_SECRET"));
  EXPECT_FALSE(facts.contains("PATH"));
}

TEST_F(EnvironmentFacts, SaysOnlyThatCardsWereSelected) {
  EXPECT_FALSE(environment_facts().contains("CUDA_VISIBLE_DEVICES"));
  set("CUDA_VISIBLE_DEVICES", "GPU-3a2b1c4d-0011-2233-4455-66778899aabb");
  EXPECT_EQ(environment_facts().at("CUDA_VISIBLE_DEVICES"), "set");
}

TEST_F(EnvironmentFacts, HasTheSettingsOfLibrariesByTheirPrefix) {
  const std::vector<std::pair<std::string, std::string>> settings{
      {"NCCL_ALGO", "Ring"},          {"NCCL_PROTO", "^LL128"},
      {"OMP_NUM_THREADS", "8"},       {"OPENBLAS_CORETYPE", "SkylakeX"},
      {"MALLOC_ARENA_MAX", "2"},      {"GLIBC_TUNABLES", "glibc.malloc.arena_max=1"},
      {"MKL_NUM_THREADS", "4"},       {"TORCH_NCCL_AVOID_RECORD_STREAMS", "1"},
      {"NCCL_NVLS_ENABLE", ""},       {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
      {"GOMP_SPINCOUNT", "0"},        {"KMP_BLOCKTIME", "200"},
      {"MKL_DYNAMIC", "FALSE"},       {"CUBLAS_EMULATE_SINGLE_PRECISION", "1"},
      {"LD_BIND_NOW", "1"},           {"CUDA_SCALE_LAUNCH_QUEUES", "4x"},
      {"TCMALLOC_RELEASE_RATE", "0"}, {"TORCHINDUCTOR_MAX_AUTOTUNE", "1"},
      {"PYTHONMALLOC", "debug"},      {"ATEN_CPU_CAPABILITY", "default"},
      {"PYTHONOPTIMIZE", "1"},        {"TORCH_SHOW_CPP_STACKTRACES", "1"},
  };
  for (const auto& [name, value] : settings) set(name, value);
  set("XNCCL_ALGO", "Tree");
  set("TORCH_HOME", "torch");
  set("PYTHONPATH", "lib");
  const auto facts = environment_facts();
  for (const auto& [name, value] : settings) EXPECT_EQ(facts.at(name), value) << name;
  for (const char* name : {"XNCCL_ALGO", "TORCH_HOME", "PYTHONPATH"}) EXPECT_FALSE(facts.contains(name)) << name;
}

TEST_F(EnvironmentFacts, SaysOnlyThatNamesOfMachinesFilesAndLibrariesAreSet) {
  const std::vector<std::string> names{
      "OMP_PLACES",      "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE",     "CUDA_INJECTION64_PATH",
      "NCCL_DEBUG_FILE", "NCCL_CONF_FILE",     "NCCL_CUDA_PATH",     "NCCL_HOSTID",
      "NCCL_RAS_ADDR",   "NCCL_COMM_ID",       "NCCL_IB_HCA",        "MALLOC_TRACE",
      "NCCL_NET_PLUGIN", "NCCL_MNNVL_UUID",    "OMP_TOOL_LIBRARIES", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
  };
  for (const auto& name : names) EXPECT_EQ(recorded_value(name, "secret"), "set") << name;
  set("NCCL_SOCKET_IFNAME", "secret");
  EXPECT_EQ(environment_facts().at("NCCL_SOCKET_IFNAME"), "set");
}

TEST_F(EnvironmentFacts, SaysOnlyThatALongOrUnreadableValueIsSet) {
  const std::string long_value(65, '1');
  EXPECT_EQ(recorded_value("NCCL_DEBUG", long_value.substr(1)), long_value.substr(1));
  EXPECT_EQ(recorded_value("NCCL_DEBUG", long_value), "set");
  EXPECT_EQ(recorded_value("PYTORCH_CUDA_ALLOC_CONF", long_value), long_value) << "many settings in one";
  EXPECT_EQ(recorded_value("NCCL_ALGO", "Ring\xff"), "set");
  set("NCCL_ALGO", "Ring\xff");
  set("NCCL_\xff", "1");
  EXPECT_NO_THROW(static_cast<void>(environment_facts().dump()));
}

TEST_F(EnvironmentFacts, KeepsPathsToItself) {
  set("GPULIFT_TORCH", "/home/someone/torch");
  EXPECT_EQ(environment_facts().at("GPULIFT_TORCH"), "set");
  EXPECT_EQ(recorded_value("NCCL_ALGO", "a/b"), "set");
  set("LD_LIBRARY_PATH", "/home/someone/lib:/opt/other");
  EXPECT_EQ(environment_facts().at("LD_LIBRARY_PATH"), "set");
  set("LD_LIBRARY_PATH", "");
  EXPECT_FALSE(environment_facts().contains("LD_LIBRARY_PATH")) << "loads nothing";
}

TEST_F(EnvironmentFacts, NameThePreloadedLibrariesWithoutTheirFolders) {
  set("LD_PRELOAD", "/home/someone/lib/libjemalloc.so.2:libother.so");
  EXPECT_EQ(environment_facts().at("LD_PRELOAD"), "libjemalloc.so.2 libother.so");
}

TEST_F(EnvironmentFacts, LeaveOutWhereSomethingIsKept) {
  set("TORCHINDUCTOR_CACHE_DIR", "inductor");
  set("CUDA_HOME", "13");
  EXPECT_FALSE(environment_facts().contains("TORCHINDUCTOR_CACHE_DIR"));
  EXPECT_FALSE(environment_facts().contains("CUDA_HOME"));
}

TEST(WithoutPaths, LeavesFlagsThatNameNoFileAsTheyAre) {
  EXPECT_EQ(without_paths("-O3 -DNDEBUG -march=native -Wl,-z,now"), "-O3 -DNDEBUG -march=native -Wl,-z,now");
  EXPECT_EQ(without_paths(""), "");
}

TEST(WithoutPaths, HidesEveryFolder) {
  for (const char* flags : {"-I/home/someone/a", "-isystem/home/someone/a", "-include /home/someone/a.h", "-Isomeone/a",
                            "--sysroot=~/someone", "-Wl,-rpath,/x:/home/someone", "'/home/someone/a b'",
                            "/home/someone/x.o", "-fplugin=../someone/p"}) {
    const auto shown = without_paths(flags);
    EXPECT_EQ(shown.find("someone"), std::string::npos) << shown;
    EXPECT_EQ(shown.find('/'), std::string::npos) << shown;
  }
  EXPECT_EQ(without_paths("-I/a/b -I/a/c"), "-I# -I#") << "whoever guesses a path would know it by its hash";
}

TEST(WithoutPaths, KeepsTheNamesOfLibraries) {
  EXPECT_EQ(without_paths("-O2 /home/someone/libfast.a -Wl,/x/libm.so.6"), "-O2 libfast.a -Wl,libm.so.6");
}

TEST(BuildEnvironment, HasWhatTheCompilersFound) {
  EXPECT_TRUE(build_environment("").empty());
  EXPECT_EQ(build_environment("CPATH=x\nNVCC_APPEND_FLAGS=-DA=1 -g"),
            (nlohmann::ordered_json{{"CPATH", "x"}, {"NVCC_APPEND_FLAGS", "-DA=1 -g"}}));
}

TEST(BuildEnvironment, HidesFolders) { EXPECT_EQ(build_environment("CPATH=/home/someone/include").at("CPATH"), "#"); }

}  // namespace
}  // namespace gpulift
