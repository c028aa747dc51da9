#include "base/tensor/npy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace replicant {
namespace {

using testing::CountingTensor;
using testing::IsSameTensor;
using testing::MakeTensor;
using testing::MessageOf;

HostTensor Parse(std::string_view text) {
  return ParseNpy(std::as_bytes(std::span(text)), "x.npy");
}

std::string ParseError(std::string_view text) {
  return MessageOf<IoError>([&] { Parse(text); });
}

std::string TextOf(const TensorView& tensor) {
  return NpyPrefix(tensor) +
         std::string(reinterpret_cast<const char*>(tensor.data()),
                     tensor.size_bytes());
}

// A file of version 1.0 with this dict literal and these elements.
std::string File(std::string_view header, std::string_view elements = "") {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xFFU);
  text += static_cast<char>(header.size() >> 8);
  return text + std::string(header) + std::string(elements);
}

std::string HeaderError(std::string_view header) {
  return ParseError(File(header));
}

TEST(NpyTest, RoundTripsEveryTypeAndRank) {
  const Shape shapes[] = {
      {},     {1},       {7},          {0},
      {3, 5}, {4, 0, 2}, {2, 3, 4, 5}, {2, 1, 2, 1, 2, 1, 2, 3}};
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kBF16) continue;
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + shape.ToString());
      const HostTensor tensor = CountingTensor(dtype, shape);
      EXPECT_TRUE(IsSameTensor(Parse(TextOf(tensor.view())), tensor));
    }
  }
}

TEST(NpyTest, WritesAFileThatReadsBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.npy";
  const HostTensor tensor = CountingTensor(DType::kF64, {3, 4});
  WriteNpy(path, tensor.view());
  EXPECT_TRUE(IsSameTensor(ReadNpy(path), tensor));
}

TEST(NpyTest, ElementsAreAlignedInTheFile) {
  const HostTensor tensor =
      CountingTensor(DType::kU8, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::string prefix = NpyPrefix(tensor.view());
  EXPECT_EQ(prefix.size() % 64, 0U);
  EXPECT_EQ(prefix.back(), '\n');
}

TEST(NpyTest, RefusesToWriteBFloat16AndLeavesNoFile) {
  const TemporaryFolder folder;
  const HostTensor tensor(DType::kBF16, {2});
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { WriteNpy(folder.path() / "x.npy", tensor.view()); }),
            "npy: numpy has no dtype bf16; hint: convert to f32, or write "
            "safetensors");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(NpyTest, ReadsVersionsTwoAndThree) {
  const std::string_view header =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n";
  for (const char version : {'\x02', '\x03'}) {
    std::string text = std::string("\x93NUMPY") + version + '\0';
    text += static_cast<char>(header.size());
    text += std::string(3, '\0') + std::string(header) + "\x05\x06";
    EXPECT_TRUE(IsSameTensor(Parse(text), MakeTensor<uint8_t>({2}, {5, 6})));
  }
}

// Column by column in the file, row by row in memory.
TEST(NpyTest, TransposesFortranOrder) {
  const HostTensor matrix =
      Parse(File("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }",
                 "\x01\x04\x02\x05\x03\x06"));
  EXPECT_TRUE(
      IsSameTensor(matrix, MakeTensor<uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6})));
}

TEST(NpyTest, SwapsBigEndianElements) {
  EXPECT_TRUE(IsSameTensor(
      Parse(File("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }",
                 std::string_view("\x00\x00\x00\x01\xFF\xFF\xFF\xFE", 8))),
      MakeTensor<int32_t>({2}, {1, -2})));
}

TEST(NpyTest, AcceptsKeysInAnyOrderAndBothQuotes) {
  EXPECT_EQ(
      Parse(File("{\"shape\":(0,4),'fortran_order':True,'descr':\"<f8\"}"))
          .shape(),
      Shape({0, 4}));
}

TEST(NpyTest, RefusesWhatIsNotANpyFile) {
  EXPECT_EQ(ParseError("\x80\x04pickle"),
            R"(x.npy: not an npy file: it does not start with \x93NUMPY)");
  EXPECT_EQ(ParseError(std::string("\x93NUMPY\x04\x00", 8)),
            "x.npy: npy version 4.0; allowed: 1.0, 2.0 and 3.0");
  EXPECT_EQ(ParseError(std::string("\x93NUMPY\x02\x00\x00\x00\x01\x00", 12)),
            "x.npy: npy header of 65536 bytes; at most 65535 are allowed");
}

TEST(NpyTest, RefusesTypesItDoesNotHave) {
  EXPECT_EQ(
      HeaderError("{'descr': '<f2', 'fortran_order': False, 'shape': ()}"),
      "x.npy: npy header, column 16: dtype '<f2' is not supported; allowed: "
      "<f4, <f8, |u1, <i4, <i8, |b1, and '>' in place of '<'; hint: convert "
      "with astype()");
  EXPECT_EQ(
      HeaderError("{'descr': '|O', 'fortran_order': False, 'shape': ()}"),
      "x.npy: npy header, column 15: object arrays are pickles, which may "
      "run code and are never read; hint: save a numeric array");
  EXPECT_EQ(HeaderError("{'descr': [('a', '<f4')], 'fortran_order': False}"),
            "x.npy: npy header, column 11: structured dtypes are not "
            "supported; hint: save each field as an array of its own");
}

TEST(NpyTest, RefusesHeadersThatAreNotTheOneDict) {
  const std::string_view rest = "'fortran_order': False, 'shape': ()}";
  const auto with_descr = [&](std::string_view descr) {
    return HeaderError("{'descr': " + std::string(descr) + ", " +
                       std::string(rest));
  };
  EXPECT_EQ(HeaderError(""), "x.npy: npy header, column 1: expected '{'");
  EXPECT_EQ(HeaderError("{'descr': '<f4', 'shape': ()}"),
            "x.npy: npy header, column 30: the key 'fortran_order' is missing");
  EXPECT_EQ(HeaderError("{'descr': '<f4', 'fortran_order': False}"),
            "x.npy: npy header, column 41: the key 'shape' is missing");
  EXPECT_EQ(HeaderError("{" + std::string(rest)),
            "x.npy: npy header, column 38: the key 'descr' is missing");
  EXPECT_EQ(with_descr("'<f4', 'descr': '<f4'"),
            "x.npy: npy header, column 26: second key 'descr'");
  EXPECT_EQ(with_descr("'<f4', 'more': 1"),
            "x.npy: npy header, column 25: unknown key 'more'; allowed: descr, "
            "fortran_order, shape");
  EXPECT_EQ(with_descr("'<f\\x34'"),
            "x.npy: npy header, column 11: the string has no plain end");
  EXPECT_EQ(HeaderError("{'fortran_order': 0}"),
            "x.npy: npy header, column 19: expected True or False");
  EXPECT_EQ(HeaderError("{'descr': '<f4', " + std::string(rest) + " #"),
            "x.npy: npy header, column 55: expected nothing after the dict");
}

TEST(NpyTest, RefusesShapesOutsideTheLimits) {
  const auto with_shape = [](std::string_view shape) {
    return HeaderError("{'descr': '<f4', 'fortran_order': False, 'shape': " +
                       std::string(shape) + "}");
  };
  EXPECT_EQ(with_shape("(3)"), "x.npy: npy header, column 53: expected ','");
  EXPECT_EQ(with_shape("(-3,)"),
            "x.npy: npy header, column 52: expected a whole number");
  EXPECT_EQ(with_shape("(9223372036854775808,)"),
            "x.npy: npy header, column 52: the number does not fit 64 bits");
  EXPECT_EQ(with_shape("(1,1,1,1,1,1,1,1,1)"),
            "x.npy: npy header, column 69: more than 8 dimensions; at most 8 "
            "are allowed");
  EXPECT_EQ(with_shape("(4294967296, 4294967296)"),
            "x.npy: npy header, column 75: Shape: [4294967296,4294967296] has "
            "more than 2^60 - 1 elements (zero dimensions not counted)");
  // refused before a terabyte is asked for
  EXPECT_EQ(with_shape("(274877906944,)"),
            "x.npy: the npy header says f32 [274877906944], 1099511627776 "
            "bytes, but 0 bytes follow it");
}

TEST(NpyTest, RefusesLongerFiles) {
  EXPECT_EQ(ParseError(TextOf(CountingTensor(DType::kF32, {2}).view()) + "!"),
            "x.npy: the npy header says f32 [2], 8 bytes, but 9 bytes follow "
            "it");
}

// No cut may crash or pass, and each names what is missing.
TEST(NpyTest, RefusesFilesCutAtAnyByte) {
  const HostTensor tensor = CountingTensor(DType::kF32, {2, 3});
  const std::string text = TextOf(tensor.view());
  const size_t prefix_bytes = NpyPrefix(tensor.view()).size();
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string expected =
        size < prefix_bytes
            ? "x.npy: cut short: " + std::to_string(size) +
                  " bytes end inside the npy header; hint: was it copied in "
                  "full?"
            : "x.npy: the npy header says f32 [2,3], 24 bytes, but " +
                  std::to_string(size - prefix_bytes) + " bytes follow it";
    EXPECT_EQ(ParseError(text.substr(0, size)), expected);
  }
}

// A bool of another value is undefined behaviour for whoever reads it.
TEST(NpyTest, RefusesBoolsOtherThanZeroAndOne) {
  EXPECT_EQ(
      ParseError(File("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}",
                      std::string_view("\x00\x01\x02", 3))),
      "x.npy: bool element 2 is 2; allowed: 0 and 1");
}

TEST(NpyTest, NamesTheFileThatCannotBeOpened) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "no.npy").string();
  EXPECT_EQ(MessageOf<IoError>([&] { ReadNpy(path); }),
            "open: " + path + ": No such file or directory");
  EXPECT_EQ(MessageOf<IoError>([&] { ReadNpy(folder.path()); }),
            "read: " + folder.path().string() + ": Is a directory");
}

}  // namespace
}  // namespace replicant
