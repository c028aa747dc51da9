// Hostile bytes for the envelope and its bodies. An accepted message must
// encode to the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

using Bytes = std::vector<std::byte>;

Bytes BytesOf(const Frame& frame) {
  return {frame.bytes().begin(), frame.bytes().end()};
}

// Cuts the input into parts: the header takes what one byte says, each further
// part what its own byte says. The top bit of the first byte asks for a header
// whose checksum is made right, as chance would not find one.
Message SplitIntoParts(std::span<const std::byte> input) {
  Message message;
  const bool has_good_checksum =
      !input.empty() && (std::to_integer<uint8_t>(input[0]) & 0x80) != 0;
  while (!input.empty()) {
    const size_t size = std::to_integer<uint8_t>(input[0]) & 0x7F;
    input = input.subspan(1);
    message.push_back(Frame::Copy(input.first(std::min(size, input.size()))));
    input = input.subspan(std::min(size, input.size()));
  }
  if (has_good_checksum && message[0].size() == kHeaderBytes) {
    Bytes header = BytesOf(message[0]);
    const uint32_t crc = Crc32c(std::span(header).first(kHeaderBytes - 4));
    std::memcpy(header.data() + kHeaderBytes - 4, &crc, sizeof(crc));
    message[0] = Frame::Copy(header);
  }
  return message;
}

void CheckEqual(const Message& a, const Message& b) {
  REPLICANT_CHECK_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REPLICANT_CHECK(a[i].text() == b[i].text(), "part {} differs", i);
  }
}

void FuzzEnvelope(std::span<const std::byte> input) {
  Message message = SplitIntoParts(input);
  const Message original = Share(message);
  try {
    Envelope envelope = Decode(message, {.max_parts = 4});
    REPLICANT_CHECK_LE(envelope.payload.size(), size_t{4});
    CheckEqual(Encode(envelope.header, std::move(envelope.payload)), original);
  } catch (const CommError&) {
    // a refused message is left as it was
    CheckEqual(message, original);
  }
}

// A part that decodes to a `Body` equals the encoding of that body.
template <typename Body>
void FuzzBody(std::span<const std::byte> input) {
  const Message part = MakeMessage(Frame::Copy(input));
  try {
    const Body body = DecodeMessage<Body>(part);
    CheckEqual(EncodeMessage(body), part);
  } catch (const MalformedMessage&) {
  }
}

// A message with one field of every form.
void FuzzFields(std::span<const std::byte> input) {
  WireWriter writer;
  try {
    WireReader reader("fuzz", input);
    writer.Write(reader.Read<uint16_t>("u16"));
    writer.WriteBool(reader.ReadBool("bool"));
    writer.WriteString(reader.ReadString("string", 16));
    writer.Write(reader.Read<int64_t>("i64"));
    const auto floats = reader.ReadArray<float>("floats", 1 << 20);
    writer.WriteArray(std::span(floats));
    writer.WriteBytes(reader.ReadBytes("bytes", 0xFFFFFFFF));
    const auto doubles = reader.ReadArray<double>("doubles", 0xFFFFFFFF);
    writer.WriteArray(std::span(doubles));
    for (const std::byte byte : reader.ReadRaw("raw", 2)) {
      writer.Write(std::to_integer<uint8_t>(byte));
    }
    reader.Finish();
  } catch (const MalformedMessage&) {
    return;
  }
  REPLICANT_CHECK(std::ranges::equal(writer.bytes(), input),
                  "written bytes differ from those read");
}

void FuzzOne(std::span<const std::byte> input) {
  if (input.empty()) return;
  // the first byte chooses the target
  const auto choice = std::to_integer<uint8_t>(input[0]) % 4;
  input = input.subspan(1);
  if (choice == 0) FuzzEnvelope(input);
  if (choice == 1) FuzzBody<ErrorBody>(input);
  if (choice == 2) FuzzBody<HelloBody>(input);
  if (choice == 3) FuzzFields(input);
}

}  // namespace
}  // namespace replicant::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  replicant::rpc::FuzzOne(std::as_bytes(std::span(data, size)));
  return 0;
}
