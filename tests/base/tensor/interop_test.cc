// The safetensors package reads what we write, and we read what it writes:
// interop.py is the other half.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"
#include "tests/support/tensors.h"

namespace replicant {
namespace {

using testing::CountingTensor;
using testing::IsSameTensor;

struct NamedTensor {
  std::string name;
  HostTensor tensor;
};

// The arrays that both sides know by heart.
std::vector<NamedTensor> Arrays() {
  const std::pair<const char*, Shape> shapes[] = {
      {"scalar", {}}, {"vector", {5}}, {"empty", {0, 3}}, {"cube", {2, 3, 4}}};
  std::vector<NamedTensor> arrays;
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kBF16) continue;
    for (const auto& [name, shape] : shapes) {
      arrays.push_back({std::string(DTypeName(dtype)) + "_" + name,
                        CountingTensor(dtype, shape)});
    }
  }
  return arrays;
}

std::vector<NamedTensorView> ViewsOf(const std::vector<NamedTensor>& arrays) {
  std::vector<NamedTensorView> views;
  views.reserve(arrays.size());
  for (const auto& [name, tensor] : arrays) {
    views.push_back({name, tensor.view()});
  }
  return views;
}

// Runs `interop.py <mode> <folder>` in the Python environment of scripts/setup;
// returns what went wrong.
std::string RunScript(const std::string& mode,
                      const std::filesystem::path& folder) {
  ProcessOptions options;
  options.command = {REPLICANT_PYTHON,
                     REPLICANT_SOURCE_DIR "/tests/base/tensor/interop.py", mode,
                     folder.string()};
  const CommandResult result = RunCommand(options, std::chrono::seconds(50));
  if (result.status.ok()) return "";
  return result.status.ToString() + ": " + result.output +
         "hint: scripts/setup installs numpy and safetensors";
}

// The script's files, made once for all tests.
struct MadeFiles {
  TemporaryFolder folder;
  std::string problem = RunScript("make", folder.path());
};

const MadeFiles& Made() {
  static const MadeFiles made;
  return made;
}

std::filesystem::path File(const std::string& name) {
  return Made().folder.path() / name;
}

class SafetensorsInteropTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Made().problem, ""); }
};

TEST_F(SafetensorsInteropTest, ReadsFilesOfTheReference) {
  const SafetensorsReader reader(File("numpy.safetensors"));
  EXPECT_EQ(reader.metadata(),
            (SafetensorsMetadata{{"made_by", "safetensors"}}));
  const std::vector<NamedTensor> arrays = Arrays();
  EXPECT_EQ(reader.tensors().size(), arrays.size());
  for (const auto& [name, tensor] : arrays) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(IsSameTensor(reader.Read(name), tensor));
  }

  const SafetensorsReader half(File("half.safetensors"));
  EXPECT_TRUE(IsSameTensor(half.Read("b"), CountingTensor(DType::kBF16, {4})));
  EXPECT_TRUE(half.Has("h"));
}

TEST_F(SafetensorsInteropTest, ConvertsTypesOfTheReference) {
  const SafetensorsReader narrow(File("narrow.safetensors"));
  const SafetensorsReader wide(File("wide.safetensors"));
  EXPECT_EQ(wide.tensors().size(), 6U);
  for (const SafetensorsInfo& info : wide.tensors()) {
    if (info.name == "f2") continue;
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(IsSameTensor(narrow.Read(info.name), wide.Read(info.name)));
  }
  // every code of a half; a NaN may have other bits
  const HostTensor halves = narrow.Read("f2"), floats = wide.Read("f2");
  ASSERT_EQ(halves.shape(), Shape({1 << 16}));
  ASSERT_EQ(halves.dtype(), DType::kF32);
  for (size_t i = 0; i < 1U << 16U; ++i) {
    const float half = halves.Span<float>()[i], full = floats.Span<float>()[i];
    ASSERT_EQ(std::isnan(half), std::isnan(full)) << i;
    if (std::isnan(full)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(half), std::bit_cast<uint32_t>(full))
        << i;
  }
}

// The script compares; the safetensors file must equal the reference's, byte
// by byte.
TEST(ReplicantFilesTest, AreReadByTheReference) {
  const TemporaryFolder folder;
  const std::vector<NamedTensor> arrays = Arrays();
  const std::vector<NamedTensorView> views = ViewsOf(arrays);
  WriteSafetensors(folder.path() / "numpy.safetensors", views,
                   {{"made_by", "safetensors"}});
  const HostTensor half = CountingTensor(DType::kBF16, {4});
  WriteSafetensors(folder.path() / "half.safetensors",
                   std::vector<NamedTensorView>{{"b", half.view()}});
  EXPECT_EQ(RunScript("check", folder.path()), "");
}

}  // namespace
}  // namespace replicant
