#include "fleet/cpu_topology.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/fs.h"

namespace replicant::fleet {
namespace {

// A made-up machine: files below a folder.
class CpuTopologyTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const auto path = folder_.path() / file;
    MakeFolders(path.parent_path());
    AtomicWriteFile(path, text + "\n");
  }
  void AddCpu(int cpu, const std::string& siblings, int package) {
    const auto folder =
        fmt::format("sys/devices/system/cpu/cpu{}/topology/", cpu);
    Write(folder + "thread_siblings_list", siblings);
    Write(folder + "physical_package_id", std::to_string(package));
  }
  CpuTopology Read(const std::string& allowed) {
    return ReadCpuTopology(CpuSet::Parse(allowed), folder_.path());
  }
  std::vector<int> Order(const std::string& allowed) {
    std::vector<int> cpus;
    for (const Processor& p : Read(allowed).processors) cpus.push_back(p.cpu);
    return cpus;
  }

  const TemporaryFolder folder_;
};

// Two packages of two cores of two threads; siblings are 4 apart.
TEST_F(CpuTopologyTest, CoresComeBeforeTheirSecondThreads) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    AddCpu(cpu, fmt::format("{},{}", cpu % 4, cpu % 4 + 4), cpu % 2);
  }
  EXPECT_EQ(Order("0-7"), (std::vector<int>{0, 2, 1, 3, 4, 6, 5, 7}));
  // what this process may not use is no sibling either
  EXPECT_EQ(Order("4-7"), (std::vector<int>{4, 6, 5, 7}));
  EXPECT_EQ(Order("1,3,5"), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(Read("5").processors,
            (std::vector<Processor>{{.cpu = 5, .core = 1, .package = 1}}));
}

TEST_F(CpuTopologyTest, WithoutFilesEveryProcessorIsACore) {
  const CpuTopology topology = Read("0,3");
  EXPECT_EQ(
      topology.processors,
      (std::vector<Processor>{{.cpu = 0, .core = 0}, {.cpu = 3, .core = 3}}));
  EXPECT_TRUE(std::isinf(topology.quota));
  EXPECT_EQ(topology.NumUsable(), 2);
}

TEST_F(CpuTopologyTest, TheSmallestQuotaOfTheGroupsAroundHolds) {
  Write("proc/self/cgroup", "0::/kube/pod");
  Write("sys/fs/cgroup/kube/pod/cpu.max", "max 100000");
  EXPECT_TRUE(std::isinf(Read("0-7").quota));
  Write("sys/fs/cgroup/kube/cpu.max", "350000 100000");
  EXPECT_EQ(Read("0-7").quota, 3.5);
  EXPECT_EQ(Read("0-7").NumUsable(), 3);
  Write("sys/fs/cgroup/kube/pod/cpu.max", "20000 100000");
  EXPECT_EQ(Read("0-7").NumUsable(), 1);
}

TEST_F(CpuTopologyTest, ReadsTheQuotaOfTheFirstVersion) {
  Write("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/x\n0::/");
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/docker/x/";
  Write(group + "cpu.cfs_quota_us", "-1");
  Write(group + "cpu.cfs_period_us", "100000");
  EXPECT_TRUE(std::isinf(Read("0-7").quota));
  Write(group + "cpu.cfs_quota_us", "200000");
  EXPECT_EQ(Read("0-7").quota, 2.0);
}

TEST_F(CpuTopologyTest, FindsTheProcessorsOfThisMachine) {
  const CpuTopology topology = ReadCpuTopology();
  std::vector<int> cpus;
  for (const Processor& p : topology.processors) cpus.push_back(p.cpu);
  EXPECT_EQ(CpuSet(cpus), CpuSet::OfThisThread());
  EXPECT_GE(topology.NumUsable(), 1);
}

}  // namespace
}  // namespace replicant::fleet
