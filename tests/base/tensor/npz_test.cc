#include "base/tensor/npz.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace replicant {
namespace {

using testing::CountingTensor;
using testing::IsSameTensor;
using testing::MessageOf;

NpzReader Open(std::string_view text) {
  return {std::as_bytes(std::span(text)), "x.npz"};
}

std::string OpenError(std::string_view text) {
  return MessageOf<IoError>([&] { Open(text); });
}

// What reading array "a" of an archive says.
std::string ReadError(std::string_view text) {
  const NpzReader reader = Open(text);
  return MessageOf<IoError>([&] { reader.Read("a"); });
}

// An archive of f32 [2,3] arrays with these names.
std::string Archive(const std::vector<std::string>& names,
                    NpzCompression compression = NpzCompression::kStored) {
  const HostTensor tensor = CountingTensor(DType::kF32, {2, 3});
  std::vector<NamedTensorView> views;
  views.reserve(names.size());
  for (const std::string& name : names) views.push_back({name, tensor.view()});
  return EncodeNpz(views, compression);
}

// Offsets in an entry of the central directory (APPNOTE.TXT, 4.3.12).
enum CentralField {
  kFlags = 8,
  kMethod = 10,
  kCrc = 16,
  kPacked = 20,
  kSize = 24
};

// Overwrites a field of the first entry of the central directory.
std::string WithCentralField(std::string text, CentralField field,
                             std::string_view bytes) {
  const size_t entry = text.find("PK\x01\x02");
  EXPECT_NE(entry, std::string::npos);
  return text.replace(entry + field, bytes.size(), bytes);
}

// Renames entries by overwriting every `from` with as long a `to`.
std::string Renamed(std::string text, std::string_view from,
                    std::string_view to) {
  EXPECT_EQ(from.size(), to.size());
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
    text.replace(at, to.size(), to);
  }
  return text;
}

TEST(NpzTest, RoundTripsEveryTypeStoredAndDeflated) {
  std::vector<std::pair<std::string, HostTensor>> tensors;
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kBF16) continue;
    for (const Shape& shape : {Shape({}), Shape({0, 3}), Shape({40, 50})}) {
      tensors.emplace_back(std::string(DTypeName(dtype)) + shape.ToString(),
                           CountingTensor(dtype, shape));
    }
  }
  std::vector<NamedTensorView> views;
  views.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name, tensor.view()});
  }

  const TemporaryFolder folder;
  const auto path = folder.path() / "x.npz";
  for (const auto compression :
       {NpzCompression::kStored, NpzCompression::kDeflated}) {
    WriteNpz(path, views, compression);
    const NpzReader reader(path);
    ASSERT_EQ(reader.names().size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      SCOPED_TRACE(name);
      EXPECT_TRUE(IsSameTensor(reader.Read(name), tensor));
    }
  }
}

TEST(NpzTest, KeepsTheOrderAndFoldersOfNames) {
  const std::string text = Archive({"w", "layer/b", "\xC3\xA9", "a"});
  const NpzReader reader = Open(text);
  EXPECT_EQ(reader.names(),
            (std::vector<std::string>{"w", "layer/b", "\xC3\xA9", "a"}));
  EXPECT_TRUE(reader.Has("layer/b"));
  EXPECT_FALSE(reader.Has("b"));
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("b"); }),
            "x.npz: no array 'b'; it holds: w, layer/b, \xC3\xA9, a");
}

TEST(NpzTest, WritesAndReadsAnArchiveWithoutArrays) {
  const std::string text = EncodeNpz({});
  EXPECT_EQ(text.size(), 22U);
  EXPECT_TRUE(Open(text).names().empty());
}

TEST(NpzTest, PassesOverOtherEntries) {
  const std::string text = Renamed(Archive({"a", "b"}), "b.npy", "b.txt");
  EXPECT_EQ(Open(text).names(), std::vector<std::string>{"a"});
}

TEST(NpzTest, RefusesNamesThatLeaveTheArchive) {
  const auto error = [](std::string_view entry) {
    const std::string old(entry.size() - 4, 'q');
    return OpenError(Renamed(Archive({old}), old + ".npy", entry));
  };
  const std::string problem =
      "a name must be relative, without empty, '.' or '..' parts";
  EXPECT_EQ(error("../a.npy"), "x.npz: entry '../a.npy': " + problem);
  EXPECT_EQ(error("/a.npy"), "x.npz: entry '/a.npy': " + problem);
  EXPECT_EQ(error("a//b.npy"), "x.npz: entry 'a//b.npy': " + problem);
  EXPECT_EQ(error("a\\b.npy"),
            "x.npz: entry 'a\\b.npy': a backslash is not allowed; hint: use "
            "'/'");
}

TEST(NpzTest, RefusesNamesThatCannotBeWritten) {
  const auto error = [](const std::vector<std::string>& names) {
    return MessageOf<InvalidArgument>([&] { Archive(names); });
  };
  EXPECT_EQ(error({"a", "a"}), "WriteNpz: two tensors are named 'a'");
  EXPECT_EQ(error({""}),
            "WriteNpz: name '': a name must be relative, without empty, '.' or "
            "'..' parts");
  EXPECT_EQ(error({"a\nb"}),
            "WriteNpz: name 'a\nb': control characters are not allowed");
  EXPECT_EQ(error({"\xFF"}),
            "WriteNpz: name '\xFF': Invalid argument; allowed: UTF-8 of at "
            "most 65535 bytes");
}

TEST(NpzTest, RefusesTwoEntriesOfOneName) {
  EXPECT_EQ(OpenError(Renamed(Archive({"a", "b"}), "b.npy", "a.npy")),
            "x.npz: two entries are named 'a.npy'; names must differ");
}

// A lie about the size must be found before it is allocated.
TEST(NpzTest, RefusesSizesThatTheBytesCannotInflateTo) {
  const std::string_view huge("\xFE\xFF\xFF\xFF", 4);
  const std::string deflated = Archive({"a"}, NpzCompression::kDeflated);
  const std::string stored = Archive({"a"});
  EXPECT_EQ(ReadError(WithCentralField(stored, kSize, huge)),
            "x.npz: entry 'a.npy': claims 4294967294 bytes from 152 stored "
            "bytes in an archive of 260 bytes, more than they can hold");
  const std::string error = ReadError(WithCentralField(deflated, kSize, huge));
  EXPECT_TRUE(
      error.starts_with("x.npz: entry 'a.npy': claims 4294967294 bytes from "))
      << error;
  EXPECT_EQ(ReadError(WithCentralField(stored, kPacked, huge)),
            "x.npz: entry 'a.npy': claims 152 bytes from 4294967294 stored "
            "bytes in an archive of 260 bytes, more than they can hold");
}

TEST(NpzTest, RefusesArraysOverTheCallersLimit) {
  const std::string text = Archive({"a"});
  const NpzReader reader(std::as_bytes(std::span(text)), "x.npz",
                         /*max_tensor_bytes=*/100);
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("a"); }),
            "x.npz: entry 'a.npy': claims 152 bytes; at most 100 are allowed");
}

TEST(NpzTest, RefusesDamagedElements) {
  std::string stored = Archive({"a", "b"});
  // the last element of "a", just before the header of "b"
  stored[stored.find("PK\x03\x04", 4) - 1] ^= '\x01';
  EXPECT_EQ(ReadError(stored), "x.npz: entry 'a.npy': CRC error");
  // the reader goes on with what is whole
  EXPECT_EQ(Open(stored).Read("b").shape(), Shape({2, 3}));
}

TEST(NpzTest, RefusesOtherCompressionAndEncryption) {
  EXPECT_EQ(
      ReadError(WithCentralField(Archive({"a"}), kMethod,
                                 std::string_view("\x0C\x00", 2))),
      "x.npz: entry 'a.npy': has compression method 12; allowed: 0 (stored), 8 "
      "(deflated)");
  EXPECT_EQ(ReadError(WithCentralField(Archive({"a"}), kFlags,
                                       std::string_view("\x01\x00", 2))),
            "x.npz: entry 'a.npy': is encrypted; allowed: plain entries");
}

// An entry shorter or longer than the directory says, by one byte.
TEST(NpzTest, RefusesSizesThatTheEntryDoesNotHave) {
  const std::string deflated = Archive({"a"}, NpzCompression::kDeflated);
  EXPECT_EQ(ReadError(WithCentralField(deflated, kSize,
                                       std::string_view("\x99\0\0\0", 4))),
            "x.npz: entry 'a.npy': the npy header says f32 [2,3], 24 bytes, "
            "but 25 bytes follow it");
}

// Without its end an archive has no directory.
TEST(NpzTest, RefusesArchivesCutAtAnyByte) {
  for (const auto compression :
       {NpzCompression::kStored, NpzCompression::kDeflated}) {
    const std::string text = Archive({"a", "b"}, compression);
    EXPECT_EQ(OpenError(""), "x.npz: is empty; hint: was it copied in full?");
    for (size_t size = 1; size < text.size(); ++size) {
      EXPECT_EQ(OpenError(text.substr(0, size)),
                "x.npz: not a readable zip archive: Not a zip archive")
          << size;
    }
  }
}

TEST(NpzTest, NamesTheFileThatCannotBeOpened) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "no.npz").string();
  EXPECT_EQ(MessageOf<IoError>([&] { NpzReader{std::filesystem::path(path)}; }),
            "open: " + path + ": No such file or directory");
}

}  // namespace
}  // namespace replicant
