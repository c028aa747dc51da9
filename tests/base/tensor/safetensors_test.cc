#include "base/tensor/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
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

SafetensorsReader Open(std::string_view text) {
  return {std::as_bytes(std::span(text)), "x.safetensors"};
}

// The message of opening a file.
std::string OpenError(std::string_view text) {
  return MessageOf<IoError>([&] { Open(text); });
}

// A file with this header and this many zero bytes of data.
std::string File(std::string_view json, size_t data_bytes = 0) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>((uint64_t{json.size()} >> (8 * i)) & 0xFFU);
  }
  return text + std::string(json) + std::string(data_bytes, '\0');
}

// The message without "x.safetensors: ", which must be there.
std::string HeaderError(std::string_view json, size_t data_bytes = 0) {
  const std::string message = OpenError(File(json, data_bytes));
  constexpr std::string_view kWhere = "x.safetensors: ";
  EXPECT_TRUE(message.starts_with(kWhere)) << message;
  return message.substr(std::min(kWhere.size(), message.size()));
}

TEST(SafetensorsTest, RoundTripsEveryTypeAndRank) {
  const Shape shapes[] = {{}, {1}, {7}, {0}, {3, 5}, {2, 1, 2, 1, 2, 1, 2, 3}};
  std::vector<std::pair<std::string, HostTensor>> tensors;
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : shapes) {
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
  const auto path = folder.path() / "x.safetensors";
  const SafetensorsMetadata metadata = {{"step", "17"}, {"\"\n\\", "\xC3\xA9"}};
  WriteSafetensors(path, views, metadata);
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.metadata(), metadata);
  EXPECT_EQ(reader.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(IsSameTensor(reader.Read(name), tensor));
  }
}

// Would catch an order or a padding that leaves float64 on odd addresses, and
// a file that depends on the order of the arguments.
TEST(SafetensorsTest, WritesLargeElementsFirstAndAligned) {
  const HostTensor bytes = CountingTensor(DType::kU8, {3});
  const HostTensor doubles = CountingTensor(DType::kF64, {2});
  const std::string text = EncodeSafetensors(std::vector<NamedTensorView>{
      {"b", bytes.view()}, {"z", doubles.view()}, {"a", doubles.view()}});
  const std::string json =
      R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
      R"("z":{"dtype":"F64","shape":[2],"data_offsets":[16,32]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[32,35]}})";
  EXPECT_EQ(text.substr(8, json.size()), json);
  EXPECT_EQ((text.size() - 35) % 8, 0U);
  // the spaces that pad the header
  EXPECT_EQ(text.substr(8 + json.size(), text.size() - 35 - 8 - json.size()),
            std::string((8 - json.size() % 8) % 8, ' '));
  EXPECT_EQ(
      text,
      EncodeSafetensors(std::vector<NamedTensorView>{
          {"a", doubles.view()}, {"b", bytes.view()}, {"z", doubles.view()}}));
}

TEST(SafetensorsTest, WritesAndReadsAFileWithoutTensors) {
  const std::string text = EncodeSafetensors({});
  EXPECT_EQ(text, File("{}      "));
  EXPECT_TRUE(Open(text).tensors().empty());
}

TEST(SafetensorsTest, RefusesNamesThatCannotBeWritten) {
  const HostTensor tensor(DType::kU8, {1});
  const auto error = [&](const std::vector<std::string>& names) {
    std::vector<NamedTensorView> views;
    views.reserve(names.size());
    for (const std::string& name : names)
      views.push_back({name, tensor.view()});
    return MessageOf<InvalidArgument>([&] { EncodeSafetensors(views); });
  };
  EXPECT_EQ(error({"a", "a"}), "WriteSafetensors: two tensors are named 'a'");
  EXPECT_EQ(error({"__metadata__"}),
            "WriteSafetensors: no tensor may be named '__metadata__'");
  EXPECT_EQ(error({"\xFF"}),
            "safetensors: name or metadata '\xFF' is not UTF-8");
}

TEST(SafetensorsTest, ListsTypesItCannotReadAndSaysSoOnRead) {
  const std::string text =
      File(R"({"h":{"dtype":"C64","shape":[1],"data_offsets":[0,8]},)"
           R"("i":{"dtype":"I32","shape":[1],"data_offsets":[8,12]},)"
           R"("k":{"dtype":"F4","shape":[2,2],"data_offsets":[12,14]}})",
           14);
  const SafetensorsReader reader = Open(text);
  EXPECT_EQ(reader.tensors()[0].dtype_name, "C64");
  EXPECT_EQ(reader.Read("i").Span<int32_t>()[0], 0);
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("h"); }),
            "x.safetensors: tensor 'h' has dtype 'C64'; allowed: F32, F64, "
            "BF16, U8, I32, I64, BOOL, F16, I8, I16, U16, U32, U64, F8_E4M3, "
            "F8_E5M2, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ");
  EXPECT_THROW(reader.Read("k"), IoError);
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("j"); }),
            "x.safetensors: no tensor 'j' among its 3");
}

// The one-byte floats of safetensors 0.8: zero, the smallest number, one, the
// largest number, and what is no finite number.
TEST(SafetensorsTest, ConvertsSmallFloats) {
  const auto values = [](const std::string& type, std::string_view codes) {
    const size_t size = codes.size();
    std::string text = File(
        R"({"a":{"dtype":")" + type + R"(","shape":[)" + std::to_string(size) +
            R"(],"data_offsets":[0,)" + std::to_string(size) + "]}}",
        size);
    text.replace(text.size() - size, size, codes);
    const HostTensor read = Open(text).Read("a");
    const auto span = read.Span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  using ::testing::ElementsAre;
  using ::testing::IsNan;
  EXPECT_THAT(
      values("F8_E4M3", std::string_view("\x00\x01\x38\x7e\xfe\x7f", 6)),
      ElementsAre(0.0F, 0x1p-9F, 1.0F, 448.0F, -448.0F, IsNan()));
  EXPECT_THAT(
      values("F8_E5M2", std::string_view("\x00\x01\x3c\x7b\x7c\xfc\x7d", 7)),
      ElementsAre(0.0F, 0x1p-16F, 1.0F, 57344.0F, kInfinity, -kInfinity,
                  IsNan()));
  EXPECT_THAT(
      values("F8_E4M3FNUZ", std::string_view("\x00\x01\x40\x7f\xff\x80", 6)),
      ElementsAre(0.0F, 0x1p-10F, 1.0F, 240.0F, -240.0F, IsNan()));
  EXPECT_THAT(
      values("F8_E5M2FNUZ", std::string_view("\x00\x01\x40\x7f\xff\x80", 6)),
      ElementsAre(0.0F, 0x1p-17F, 1.0F, 57344.0F, -57344.0F, IsNan()));
  EXPECT_THAT(values("F8_E8M0", std::string_view("\x00\x7f\xfe\xff", 4)),
              ElementsAre(0x1p-127F, 1.0F, 0x1p127F, IsNan()));
}

TEST(SafetensorsTest, RefusesWholeNumbersOutsideTheRange) {
  std::string text =
      File(R"({"a":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}})", 16);
  text.back() = '\x80';
  EXPECT_EQ(MessageOf<IoError>([&] { Open(text).Read("a"); }),
            "x.safetensors: tensor 'a': value 9223372036854775808 of type "
            "U64; at most 9223372036854775807 is allowed");
}

// As the reference: some writers make such headers.
TEST(SafetensorsTest, AcceptsHeadersOfOtherWriters) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[],)"
                            R"("extra":{"x":[1,-2,0.5,null,true,"s",{}]},)"
                            R"("n":null,"data_offsets":[0,1]})";
  for (const std::string& json : {"{" + entry + "}", " \t\r\n{" + entry + "}",
                                  R"({"__metadata__":null,)" + entry + "}",
                                  "{" + entry + R"(,"__metadata__":null})"}) {
    SCOPED_TRACE(json);
    const std::string text = File(json, 1);
    const SafetensorsReader reader = Open(text);
    EXPECT_TRUE(reader.metadata().empty());
    ASSERT_EQ(reader.tensors().size(), 1U);
    EXPECT_EQ(reader.Read("a").Span<uint8_t>()[0], 0);
  }
}

TEST(SafetensorsTest, RefusesOverlongHeaders) {
  EXPECT_EQ(OpenError("1234567"),
            "x.safetensors: 7 bytes, too short for a safetensors file");
  EXPECT_EQ(OpenError(std::string(8, '\xFF')),
            "x.safetensors: safetensors header of 18446744073709551615 bytes; "
            "at most 100000000 are allowed; hint: is it a safetensors file?");
  EXPECT_EQ(OpenError(std::string("\x04\0\0\0\0\0\0\0{}", 10)),
            "x.safetensors: safetensors header of 4 bytes in a file of 10; "
            "hint: was it copied in full?");
}

TEST(SafetensorsTest, RefusesOffsetsThatDoNotTileTheData) {
  const auto two = [](std::string_view a, std::string_view b) {
    return HeaderError(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" +
                           std::string(a) +
                           R"(},"b":{"dtype":"U8","shape":[4],)" +
                           R"("data_offsets":)" + std::string(b) + "}}",
                       8);
  };
  EXPECT_EQ(two("[0,4]", "[3,7]"),
            "tensor 'b' begins at byte 3 of the data, but the previous tensor "
            "ends at 4; gaps and overlaps are not allowed");
  EXPECT_EQ(two("[0,4]", "[5,8]"),
            "tensor 'b' begins at byte 5 of the data, but the previous tensor "
            "ends at 4; gaps and overlaps are not allowed");
  EXPECT_EQ(two("[1,4]", "[4,8]"),
            "tensor 'a' begins at byte 1 of the data, but the previous tensor "
            "ends at 0; gaps and overlaps are not allowed");
  EXPECT_EQ(two("[0,4]", "[4,9]"),
            "tensor 'b' lies at bytes [4, 9) of the data, which has 8");
  EXPECT_EQ(two("[0,4]", "[8,4]"),
            "tensor 'b' lies at bytes [8, 4) of the data, which has 8");
  EXPECT_EQ(two("[0,4]", "[4,7]"),
            "tensor 'b' of U8 [4] needs 4 bytes, but its data_offsets give 3");
  EXPECT_EQ(HeaderError("{}", 3),
            "the tensors end at byte 0 of the data, which has 3");
}

TEST(SafetensorsTest, RefusesHeadersOfAnotherForm) {
  EXPECT_EQ(HeaderError(""), "the safetensors header does not start with '{'");
  EXPECT_EQ(HeaderError(" x{}"),
            "the safetensors header does not start with '{'");
  EXPECT_EQ(HeaderError("\xEF\xBB\xBF{}"),
            "the safetensors header does not start with '{'");
  EXPECT_EQ(HeaderError("{} x"),
            "the safetensors header is not valid JSON at byte 4");
  EXPECT_EQ(HeaderError(std::string_view("{}\0x", 4)),
            "the safetensors header is not valid JSON at byte 3");
  EXPECT_EQ(HeaderError("{\"\xFF\":1}"),
            "the safetensors header is not valid JSON at byte 3");
  EXPECT_EQ(HeaderError(R"({"a":1})"),
            "safetensors header, entry 'a': found a number, expected a "
            "tensor's object");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":{}}})"),
            "safetensors header, entry 'a': found an object, expected a string "
            "as dtype");
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[[1]]}})"),
            "safetensors header, entry 'a': found an array, expected a whole "
            "number");
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[-1]}})"),
            "safetensors header, entry 'a': found a negative number, expected "
            "a whole number");
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[18446744073709551616]}})"),
            "safetensors header, entry 'a': found a number that is not whole "
            "or too large, expected a whole number");
  EXPECT_EQ(HeaderError(R"({"a":null})"),
            "safetensors header, entry 'a': found null, expected a tensor's "
            "object");
  EXPECT_EQ(HeaderError(R"({"a":{"more":[1,{"shape":[2]}]}})"),
            "safetensors header, entry 'a': the field 'dtype' is missing");
  EXPECT_EQ(HeaderError(R"({"__metadata__":{"step":17}})"),
            "safetensors header, entry '__metadata__': found a number, "
            "expected a string as metadata");
}

// Deep nesting must end at its first unexpected bracket, not on the stack.
TEST(SafetensorsTest, RefusesDeepNestingAtOnce) {
  EXPECT_EQ(HeaderError(R"({"a":{"shape":)" + std::string(1'000'000, '[')),
            "safetensors header, entry 'a': found an array, expected a whole "
            "number");
}

TEST(SafetensorsTest, RefusesRepeatedAndMissingParts) {
  const std::string tensor =
      R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(HeaderError(R"({"a":)" + tensor + R"(,"a":)" + tensor + "}"),
            "safetensors header: two entries are named 'a'");
  EXPECT_EQ(HeaderError(R"({"__metadata__":{},"__metadata__":{}})"),
            "safetensors header: two entries are named '__metadata__'");
  EXPECT_EQ(HeaderError(R"({"__metadata__":{"k":"1","k":"2"}})"),
            "safetensors header, entry '__metadata__': two metadata entries "
            "are named 'k'");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"U8","dtype":"U8"}})"),
            "safetensors header, entry 'a': second field 'dtype'");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"U8","shape":[]}})"),
            "safetensors header, entry 'a': the field 'data_offsets' is "
            "missing");
  EXPECT_EQ(HeaderError(R"({"a":{"data_offsets":[0]}})"),
            "safetensors header, entry 'a': data_offsets needs two numbers");
  EXPECT_EQ(HeaderError(R"({"a":{"data_offsets":[0,0,0]}})"),
            "safetensors header, entry 'a': data_offsets has more than 2 "
            "numbers; at most 2 are allowed");
}

TEST(SafetensorsTest, RefusesShapesOutsideTheLimits) {
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})"),
            "safetensors header, entry 'a': shape has more than 8 numbers; at "
            "most 8 are allowed");
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[4294967296,4294967296]}})"),
            "safetensors header, entry 'a': Shape: [4294967296,4294967296] has "
            "more than 2^60 - 1 elements (zero dimensions not counted)");
  // would be -1 after a wrap
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[18446744073709551615]}})"),
            "safetensors header, entry 'a': dimension 18446744073709551615; at "
            "most 1152921504606846975 is allowed");
}

TEST(SafetensorsTest, RefusesBoolsOtherThanZeroAndOne) {
  std::string text =
      File(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  text.back() = '\x80';
  const SafetensorsReader reader = Open(text);
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("a"); }),
            "x.safetensors: tensor 'a': bool element 1 is 128; allowed: 0 and "
            "1");
}

// No cut may crash or pass, and each names what is missing.
TEST(SafetensorsTest, RefusesFilesCutAtAnyByte) {
  const HostTensor tensor = CountingTensor(DType::kF32, {2});
  const std::string text = EncodeSafetensors(
      std::vector<NamedTensorView>{{"a", tensor.view()}}, {{"step", "1"}});
  const size_t header_bytes = text.size() - 8 - 8;
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string length = std::to_string(size);
    const std::string expected =
        size < 8 ? length + " bytes, too short for a safetensors file"
        : size < 8 + header_bytes
            ? "safetensors header of " + std::to_string(header_bytes) +
                  " bytes in a file of " + length +
                  "; hint: was it copied in full?"
            : "tensor 'a' lies at bytes [0, 8) of the data, which has " +
                  std::to_string(size - 8 - header_bytes);
    EXPECT_EQ(OpenError(text.substr(0, size)), "x.safetensors: " + expected);
  }
}

// A file that shrinks after it was opened is an error, not a dead process.
TEST(SafetensorsTest, NoticesAFileThatBecomesShorter) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const HostTensor tensor = CountingTensor(DType::kF32, {2});
  WriteSafetensors(path, std::vector<NamedTensorView>{{"a", tensor.view()}});
  const SafetensorsReader reader(path);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  EXPECT_EQ(MessageOf<IoError>([&] { reader.Read("a"); }),
            path.string() + ": became shorter while it was read: it had " +
                std::to_string(size) + " bytes and now ends at " +
                std::to_string(size - 1));
}

}  // namespace
}  // namespace replicant
