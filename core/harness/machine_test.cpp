#include "machine.hpp"

#include <gtest/gtest.h>

#include <array>

#include "host_cache.hpp"
#include "testing/system_folder.hpp"

namespace gpulift {
namespace {

class HostFacts : public SystemFolder {
 protected:
  void write_cache(int cpu, int index, const std::string& level, const std::string& size,
                   const std::string& cpus) const {
    const auto folder =
        "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level + "\n");
    write(folder + "size", size + "\n");
    write(folder + "shared_cpu_list", cpus + "\n");
  }
};

TEST_F(HostFacts, ReadsProcessorAndSystem) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9555 64-Core\nflags\t\t: fpu vme hypervisor avx\n");
  write("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  const auto facts = host_facts(root_);
  EXPECT_EQ(facts.at("cpu"), "AMD EPYC 9555 64-Core");
  EXPECT_EQ(facts.at("os"), "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(facts.at("virtual"), true);
}

// Both call themselves "AMD EPYC" in a virtual machine; one multiplies in BF16, the other does not.
TEST_F(HostFacts, TellProcessorsOfOneNameApart) {
  const std::string name = "model name\t: AMD EPYC\n";
  write("proc/cpuinfo", "cpu family\t: 25\nmodel\t\t: 1\n" + name + "stepping\t: 1\nflags\t\t: fpu avx2 avx\n");
  EXPECT_EQ(host_facts(root_).at("cpu_id"), "25-1-1");
  EXPECT_EQ(host_facts(root_).at("vector_instructions"), "avx2");
  write("proc/cpuinfo",
        "cpu family\t: 25\nmodel\t\t: 17\n" + name + "stepping\t: 1\nflags\t\t: avx512_bf16 avx2 avx512f\n");
  EXPECT_EQ(host_facts(root_).at("cpu_id"), "25-17-1");
  EXPECT_EQ(host_facts(root_).at("vector_instructions"), "avx2 avx512f avx512_bf16");
  write("proc/cpuinfo",
        "Features\t: asimd sve bf16\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: "
        "0\n");
  EXPECT_EQ(host_facts(root_).at("cpu_id"), "0x41-0x0-0xd4f-0");
  EXPECT_EQ(host_facts(root_).at("vector_instructions"), "asimd sve bf16");
}

TEST_F(HostFacts, AFlagThatOnlyContainsTheWordIsNotAHypervisor) {
  write("proc/cpuinfo", "flags\t: fpu nohypervisor hypervisor_x\n");
  EXPECT_EQ(host_facts(root_).at("virtual"), false);
}

TEST_F(HostFacts, ArmDoesNotSayWhetherItIsVirtual) {
  write("proc/cpuinfo", "Features\t: asimd sve\nCPU implementer\t: 0x41\n");
  EXPECT_FALSE(host_facts(root_).contains("virtual"));
}

TEST_F(HostFacts, WithoutFilesUnknownFactsAreAbsent) {
  const auto facts = host_facts(root_);
  for (const char* unknown : {"os", "cpu_id", "vector_instructions", "virtual", "id", "id_of"})
    EXPECT_FALSE(facts.contains(unknown)) << unknown;
  EXPECT_FALSE(facts.at("cpu").get<std::string>().empty()) << "the name of the architecture";
}

TEST_F(HostFacts, CountsTheCoresThatTheControlGroupAllows) {
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(host_facts(root_).at("cores"), 1);
}

TEST_F(HostFacts, CountsEveryLastLevelCacheOnce) {
  for (const int cpu : {0, 1, 2, 3}) {
    write_cache(cpu, 0, "1", "48K", std::to_string(cpu));
    write_cache(cpu, 3, "3", "32768K", cpu < 2 ? "0-1" : "2-3");
  }
  EXPECT_EQ(last_level_cache_bytes(root_ / "sys/devices/system/cpu"), 2U * 32768 * 1024);
  EXPECT_EQ(host_facts(root_).at("llc_bytes"), 2U * 32768 * 1024);
}

TEST_F(HostFacts, ThisMachineHasCoresMemoryAndAKernelInNumbers) {
  const auto facts = host_facts();
  EXPECT_GE(facts.at("cores"), 1);
  EXPECT_GT(facts.at("memory_bytes"), 1 << 20);
  EXPECT_EQ(facts.at("kernel").get<std::string>().find_first_not_of("0123456789."), std::string::npos);
}

TEST_F(HostFacts, DoNotNameTheHost) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  const auto facts = host_facts();
  for (const auto& [key, value] : facts.items()) EXPECT_NE(value, std::string(name.data())) << key;
}

class HostId : public HostFacts {
 protected:
  HostId() { write("proc/sys/kernel/random/boot_id", "58605327-9882-4076-ae6a-500add82a018\n"); }
  void write_machine_id(const std::string& id) const {
    std::filesystem::create_directories(root_ / "run/systemd/system");
    write("etc/machine-id", id + "\n");
  }
  nlohmann::ordered_json id() const {
    const auto facts = host_facts(root_);
    return {facts.at("id"), facts.at("id_of")};
  }
};

TEST_F(HostId, IsThatOfTheInstallation) {
  // Python: uuid.uuid5(uuid.UUID("5f0c1c4e-7a0b-4d0e-9a55-2f6d6a1c3b90"), "0123456789abcdef0123456789abcdef").hex[:8]
  write_machine_id("0123456789abcdef0123456789abcdef");
  EXPECT_EQ(id(), (nlohmann::ordered_json{"17e5da0a", "machine_id"}));
  write_machine_id("0123456789abcdef0123456789abcdee");
  EXPECT_NE(id()[0], "17e5da0a");
}

TEST_F(HostId, IsThatOfTheBootWhereTheInstallationIsAnImages) {
  write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  EXPECT_EQ(id(), (nlohmann::ordered_json{"15381142", "boot_id"}));
}

TEST_F(HostId, IsThatOfTheBootUntilTheInstallationHasOne) {
  for (const char* none : {"uninitialized", "", "0123456789abcdef"}) {
    write_machine_id(none);
    EXPECT_EQ(id(), (nlohmann::ordered_json{"15381142", "boot_id"})) << none;
  }
}

class NumaFacts : public HostFacts {
 protected:
  nlohmann::ordered_json facts() const { return numa_facts("0000:1B:00.0", root_); }
  void write_card(const std::string& node) const { write("sys/bus/pci/devices/0000:1b:00.0/numa_node", node + "\n"); }
  void write_node(int node, const std::string& cores) const {
    write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", cores + "\n");
  }
};

TEST_F(NumaFacts, FindTheCardWhateverTheCaseOfItsBusId) {
  write_card("1");
  write_node(0, "5000-5015");
  write_node(1, "0-4999");
  write("sys/devices/system/node/possible", "0-1\n");
  EXPECT_EQ(facts(),
            (nlohmann::ordered_json{{"numa_node", 1}, {"host_numa_nodes", 2}, {"affinity_covers_node", true}}));
}

TEST_F(NumaFacts, TellWhenThisProcessMayNotRunNearTheCard) {
  write_card("0");
  write_node(0, "900000,900002-900004");
  EXPECT_EQ(facts().at("affinity_covers_node"), false);
  write_node(0, "900000,0-4999,900002");
  EXPECT_EQ(facts().at("affinity_covers_node"), true);
}

TEST_F(NumaFacts, ANodeWithoutCoresHasNone) {
  write_card("0");
  write_node(0, "");
  EXPECT_FALSE(facts().contains("affinity_covers_node"));
}

TEST_F(NumaFacts, WhatTheSystemDoesNotKnowIsAbsent) {
  EXPECT_TRUE(facts().empty());
  write_card("-1");
  write_node(0, "0-4999");
  EXPECT_EQ(facts(), (nlohmann::ordered_json{{"host_numa_nodes", 1}}));
}

TEST(CardId, IsTheNameBasedUuidThatOtherLanguagesCompute) {
  // Python: uuid.uuid5(uuid.UUID("5f0c1c4e-7a0b-4d0e-9a55-2f6d6a1c3b90"),
  // "3a2b1c4d-0011-2233-4455-66778899aabb").hex[:8]
  EXPECT_EQ(card_id("GPU-3a2b1c4d-0011-2233-4455-66778899aabb"), "80831f50");
}

TEST(CardId, IsTheSameHoweverTheUuidIsWritten) {
  EXPECT_EQ(card_id("3A2B1C4D-0011-2233-4455-66778899AABB"), card_id("GPU-3a2b1c4d-0011-2233-4455-66778899aabb"));
}

TEST(CardId, TellsCardsApart) {
  EXPECT_NE(card_id("GPU-3a2b1c4d-0011-2233-4455-66778899aabb"), card_id("GPU-3a2b1c4d-0011-2233-4455-66778899aabc"));
}

constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;

TEST(WhyNoDevice, NoDriver) {
  const auto why = why_no_device(kInsufficientDriver, false, {}, 0, 13000);
  EXPECT_EQ(why.reason, "no NVIDIA driver on this machine (libcuda.so.1 cannot be opened)");
  EXPECT_NE(why.remedy.find("install the NVIDIA driver"), std::string::npos);
}

TEST(WhyNoDevice, ADriverThatIsTooOldIsNamedWithBothVersions) {
  const auto why = why_no_device(kInsufficientDriver, true, {}, 12040, 13000);
  EXPECT_EQ(why.reason, "the NVIDIA driver is too old: it supports CUDA 12.4, this build needs CUDA 13.0");
  EXPECT_EQ(why.remedy, "install a driver that supports CUDA 13.0 or later");
}

TEST(WhyNoDevice, AnEmptyListOfVisibleDevices) {
  const auto why = why_no_device(kNoDevice, true, "", 13000, 13000);
  EXPECT_EQ(why.reason, "CUDA_VISIBLE_DEVICES is empty, which hides every GPU");
  EXPECT_NE(why.remedy.find("unset CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_EQ(why_no_device(kNoDevice, true, "-1", 13000, 13000).reason, "CUDA_VISIBLE_DEVICES hides every GPU");
}

TEST(WhyNoDevice, AListThatNamesNoCardIsNotRepeated) {
  const auto why = why_no_device(kNoDevice, true, "GPU-3a2b1c4d", 13000, 13000);
  EXPECT_EQ(why.reason, "CUDA_VISIBLE_DEVICES names no GPU of this machine");
}

TEST(WhyNoDevice, ADriverWithoutACard) {
  EXPECT_EQ(why_no_device(kNoDevice, true, {}, 13000, 13000).reason, "the NVIDIA driver's library is here, but no GPU");
}

TEST(WhyNoDevice, AnythingElseIsGivenByItsNumber) {
  const auto why = why_no_device(999, true, "0", 13000, 13000);
  EXPECT_EQ(why.reason, "the CUDA runtime cannot start (CUDA error 999)");
  EXPECT_FALSE(why.remedy.empty());
}

TEST(WhyNoDevice, IsOneLineWithARemedyForEveryError) {
  for (const int error : {0, 3, 34, 35, 46, 100, 101, 304, 802, 803, 804}) {
    const auto why = why_no_device(error, true, {}, 13000, 13000);
    EXPECT_EQ((why.reason + why.remedy).find('\n'), std::string::npos);
    EXPECT_FALSE(why.reason.empty() || why.remedy.empty()) << error;
  }
}

TEST(WhyNoDeviceCode, NamesWhatWasBuiltAndWhatIsThere) {
  const auto why = why_no_device_code("80-real;90a-real", 120);
  EXPECT_EQ(why.reason,
            "this build cannot run on the GPU: it is for the architectures 80-real 90a-real, the GPU is 12.0");
  EXPECT_NE(why.remedy.find("./gpulift setup"), std::string::npos);
}

}  // namespace
}  // namespace gpulift
