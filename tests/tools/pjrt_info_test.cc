// The program `pjrt_info`, with a fake plugin and with vendors' plugins that
// are installed in the Python environment of scripts/setup.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/process.h"
#include "tests/support/fake_pjrt/fake_pjrt.h"

namespace replicant {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CommandResult RunPjrtInfo(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), REPLICANT_PJRT_INFO);
  return RunCommand({.command = arguments}, std::chrono::minutes(2));
}

// Where pip puts packages; empty if there is no such file.
std::filesystem::path InstalledFile(const std::string& name) {
  const std::filesystem::path lib =
      std::filesystem::path(REPLICANT_PYTHON).parent_path().parent_path() /
      "lib";
  for (const auto& python : std::filesystem::directory_iterator(lib)) {
    const auto file = python.path() / "site-packages" / name;
    if (std::filesystem::exists(file)) return file;
  }
  return {};
}

TEST(PjrtInfoTest, PrintsWhatAPluginSays) {
  const testing::FakePlugin fake;
  const CommandResult result =
      RunPjrtInfo({fake.file().string(), "memory=0.5"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_EQ(result.output,
            fmt::format(
                "{}: version {}.{} of PJRT\n"
                "compiler: fake\nxla_version: 2\n"
                "stablehlo_current_version: 1.13.3\nis_fake: true\n"
                "speed: 0.5\nplatform: fake (version 1)\n"
                "device 0: fake device, id 10\ndevice 1: fake device, id 11\n",
                fake.file().string(), PJRT_API_MAJOR, PJRT_API_MINOR));
}

TEST(PjrtInfoTest, AMistakeIsOneClearLine) {
  const CommandResult result = RunPjrtInfo({"/no/such/plugin.so"});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_EQ(result.output,
            "pjrt_info: cannot load /no/such/plugin.so: cannot open shared "
            "object file: No such file or directory; hint: give the file of a "
            "PJRT plugin\n");
}

// A vendor's plugin is loaded, initialized and read. Where the machine lacks
// its device, it says so in one line.
struct Vendor {
  const char* package;
  const char* file;
  const char* platform;
};

class VendorPluginTest : public ::testing::TestWithParam<Vendor> {};

TEST_P(VendorPluginTest, IsReadAndNamesAMissingDevice) {
  const std::filesystem::path file = InstalledFile(GetParam().file);
  if (file.empty()) {
    GTEST_SKIP() << GetParam().package
                 << " is not installed; hint: " << REPLICANT_PYTHON
                 << " -m pip install --no-deps " << GetParam().package;
  }
  // libtpu asks a metadata server otherwise, and lets one process load it
  setenv("TPU_SKIP_MDS_QUERY", "1", /*overwrite=*/1);
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", /*overwrite=*/1);
  const CommandResult result = RunPjrtInfo({file.string()});
  EXPECT_THAT(result.output,
              ContainsRegex("version 0\\.[0-9]+ of PJRT\nxla_version: "));
  EXPECT_THAT(result.output, HasSubstr("stablehlo_current_version: "));
  if (result.status.ok()) {
    EXPECT_THAT(result.output,
                HasSubstr(fmt::format("platform: {} (", GetParam().platform)));
  } else {
    EXPECT_EQ(result.status.code, 1);
    EXPECT_THAT(result.output,
                ContainsRegex("pjrt_info: .*: PJRT_Client_Create: "
                              "[A-Z_]+: .*(No|no) .*"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vendors, VendorPluginTest,
    ::testing::Values(Vendor{"libtpu", "libtpu/libtpu.so", "tpu"},
                      Vendor{"jax-cuda13-pjrt",
                             "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
                             "cuda"}),
    [](const auto& test) { return std::string(test.param.platform); });

}  // namespace
}  // namespace replicant
