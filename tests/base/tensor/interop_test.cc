// numpy and the safetensors package read what we write, and we read what they
// write: interop.py is the other half.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/npy.h"
#include "base/tensor/npz.h"
#include "base/tensor/safetensors.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace replicant {
namespace {

using testing::CountingTensor;
using testing::IsSameTensor;
using testing::MessageOf;

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

// What the script makes, once for all tests.
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

class NumpyInteropTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Made().problem, ""); }
};

// Would catch an order, a byte order or a header that numpy writes and our own
// writer never does.
TEST_F(NumpyInteropTest, ReadsNpyFilesOfNumpy) {
  for (const auto& [name, tensor] : Arrays()) {
    SCOPED_TRACE(name);
    for (const char* kind : {"", "fortran_", "big_endian_"}) {
      SCOPED_TRACE(kind);
      EXPECT_TRUE(IsSameTensor(ReadNpy(File(kind + name + ".npy")), tensor));
    }
  }
}

TEST_F(NumpyInteropTest, RefusesNpyFilesOfNumpyItDoesNotSupport) {
  const auto error = [](const std::filesystem::path& path) {
    const std::string message = MessageOf<IoError>([&] { ReadNpy(path); });
    return message.substr(std::min(message.size(), path.string().size()));
  };
  EXPECT_EQ(error(File("float16.npy")),
            ": npy header, column 16: dtype '<f2' is not supported; allowed: "
            "<f4, <f8, |u1, <i4, <i8, |b1, and '>' in place of '<'; hint: "
            "convert with astype()");
  EXPECT_EQ(error(File("object.npy")),
            ": npy header, column 15: object arrays are pickles, which may run "
            "code and are never read; hint: save a numeric array");
  EXPECT_EQ(error(File("structured.npy")),
            ": npy header, column 11: structured dtypes are not supported; "
            "hint: save each field as an array of its own");
}

TEST_F(NumpyInteropTest, ReadsNpzFilesOfNumpy) {
  for (const char* file : {"stored.npz", "deflated.npz", "stored_zip64.npz",
                           "deflated_zip64.npz"}) {
    SCOPED_TRACE(file);
    const NpzReader reader(File(file));
    const std::vector<NamedTensor> arrays = Arrays();
    EXPECT_EQ(reader.names().size(), arrays.size());
    for (const auto& [name, tensor] : arrays) {
      SCOPED_TRACE(name);
      EXPECT_TRUE(IsSameTensor(reader.Read(name), tensor));
    }
  }
}

// No cut of the zip64 end records may crash or pass; where the old end record
// survives without them, libzip finds a contradiction.
TEST_F(NumpyInteropTest, RefusesZip64ArchivesCutAtAnyByte) {
  const std::string text = ReadFile(File("small_zip64.npz"));
  const auto open = [](std::string_view part) {
    const NpzReader reader(std::as_bytes(std::span(part)), "x.npz");
    return reader.Read("a").shape();
  };
  EXPECT_EQ(open(text), Shape({2, 3}));
  for (size_t size = 1; size < text.size(); ++size) {
    EXPECT_EQ(MessageOf<IoError>([&] { open(text.substr(0, size)); }),
              "x.npz: not a readable zip archive: Not a zip archive")
        << size;
  }
  // every single byte damaged: refused, or in a field that says nothing about
  // the elements
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(~damaged[i]);
    try {
      EXPECT_EQ(open(damaged), Shape({2, 3}));
    } catch (const IoError& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with("x.npz: ")) << i;
    }
  }
}

TEST_F(NumpyInteropTest, ReadsSafetensorsFilesOfTheReference) {
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
  EXPECT_THROW(half.Read("h"), IoError);
}

// The script compares; the safetensors file must equal the reference's, byte
// by byte.
TEST(ReplicantFilesTest, AreReadByNumpyAndSafetensors) {
  const TemporaryFolder folder;
  const std::vector<NamedTensor> arrays = Arrays();
  const std::vector<NamedTensorView> views = ViewsOf(arrays);
  for (const NamedTensorView& named : views) {
    WriteNpy(folder.path() / (named.name + ".npy"), named.tensor);
  }
  WriteNpz(folder.path() / "stored.npz", views);
  WriteNpz(folder.path() / "deflated.npz", views, NpzCompression::kDeflated);
  WriteSafetensors(folder.path() / "numpy.safetensors", views,
                   {{"made_by", "safetensors"}});
  const HostTensor half = CountingTensor(DType::kBF16, {4});
  WriteSafetensors(folder.path() / "half.safetensors",
                   std::vector<NamedTensorView>{{"b", half.view()}});
  EXPECT_EQ(RunScript("check", folder.path()), "");
}

}  // namespace
}  // namespace replicant
