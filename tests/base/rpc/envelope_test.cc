#include "base/rpc/envelope.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/rpc/fields.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

Header TestHeader() {
  return {.kind = 7,
          .flags = kReply | kPayloadCrc,
          .session_id = 11,
          .schema_hash = 12,
          .request_id = 13,
          .sender_id = 14};
}

Message TestPayload() {
  Message payload = MakeMessage(Frame::Copy("first part"));
  payload.push_back(Frame::Copy("second"));
  return payload;
}

std::vector<std::byte> BytesOf(const Frame& frame) {
  return {frame.bytes().begin(), frame.bytes().end()};
}

// The message with its header replaced, decoded; returns the error's text.
std::string ErrorWithHeader(const std::vector<std::byte>& header) {
  Message message = Encode(TestHeader(), TestPayload());
  message[0] = Frame::Copy(header);
  try {
    Decode(message);
  } catch (const CommError& e) {
    return e.what();
  }
  return "";
}

// Makes the checksum of a changed header right.
void FixChecksum(std::vector<std::byte>& header) {
  const uint32_t crc = Crc32c(std::span(header).first(60));
  std::memcpy(header.data() + 60, &crc, sizeof(crc));
}

TEST(EnvelopeTest, HeaderAndPayloadComeBack) {
  Message message = Encode(TestHeader(), TestPayload());
  const Envelope envelope = Decode(message);
  EXPECT_EQ(envelope.header, TestHeader());
  ASSERT_EQ(envelope.payload.size(), 2u);
  EXPECT_EQ(envelope.payload[0].text(), "first part");
  EXPECT_EQ(envelope.payload[1].text(), "second");
}

// Peers in other languages rely on these offsets.
TEST(EnvelopeTest, FieldsLieWhereTheTableSays) {
  const Message message = Encode(TestHeader(), TestPayload());
  ASSERT_EQ(message[0].size(), kHeaderBytes);
  WireReader reader("header", message[0].bytes());
  EXPECT_EQ(reader.ReadRaw("magic", 4)[0], std::byte{'R'});
  EXPECT_EQ(reader.Read<uint16_t>("version"), 1);
  EXPECT_EQ(reader.Read<uint16_t>("kind"), 7);
  EXPECT_EQ(reader.Read<uint32_t>("flags"), 9u);
  EXPECT_EQ(reader.Read<uint32_t>("parts"), 2u);
  EXPECT_EQ(reader.Read<uint64_t>("session"), 11u);
  EXPECT_EQ(reader.Read<uint64_t>("schema"), 12u);
  EXPECT_EQ(reader.Read<uint64_t>("request"), 13u);
  EXPECT_EQ(reader.Read<uint64_t>("sender"), 14u);
  EXPECT_EQ(reader.Read<uint64_t>("bytes"), 16u);
  EXPECT_EQ(reader.Read<uint32_t>("payload crc"), Crc32c("first partsecond"));
  EXPECT_EQ(reader.Read<uint32_t>("header crc"),
            Crc32c(message[0].bytes().first(60)));
}

TEST(EnvelopeTest, EveryFlippedBitOfTheHeaderIsAnError) {
  const Message message = Encode(TestHeader(), TestPayload());
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    std::vector<std::byte> header = BytesOf(message[0]);
    header[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(ErrorWithHeader(header), "") << "bit " << bit;
  }
}

TEST(EnvelopeTest, HeaderCutAnywhereIsAnError) {
  const Message message = Encode(TestHeader(), TestPayload());
  for (size_t size = 0; size < kHeaderBytes; ++size) {
    std::vector<std::byte> header = BytesOf(message[0]);
    header.resize(size);
    EXPECT_NE(ErrorWithHeader(header), "") << size << " bytes";
  }
  std::vector<std::byte> longer = BytesOf(message[0]);
  longer.resize(kHeaderBytes + 1);
  EXPECT_EQ(ErrorWithHeader(longer),
            "envelope: header has 65 bytes, expected 64");
}

TEST(EnvelopeTest, MessageWithoutPartsIsAnError) {
  EXPECT_THROW(Decode({}), MalformedMessage);
}

TEST(EnvelopeTest, OtherVersionSaysWhichSideIsOlder) {
  std::vector<std::byte> header =
      BytesOf(Encode(TestHeader(), TestPayload())[0]);
  header[4] = std::byte{2};
  // a later version may have another size
  header.resize(80);
  EXPECT_EQ(ErrorWithHeader(header),
            "envelope: the sender speaks version 2, this side version 1; the "
            "receiver is older; hint: update it");
  header[4] = std::byte{0};
  EXPECT_EQ(ErrorWithHeader(header),
            "envelope: the sender speaks version 0, this side version 1; the "
            "sender is older; hint: update it");
}

TEST(EnvelopeTest, UnknownFlagAndErrorWithoutReplyAreErrors) {
  std::vector<std::byte> header =
      BytesOf(Encode(TestHeader(), TestPayload())[0]);
  header[8] = std::byte{16};
  FixChecksum(header);
  EXPECT_EQ(ErrorWithHeader(header), "envelope: flags 0x10 are not allowed");
  header[8] = std::byte{kError};
  FixChecksum(header);
  EXPECT_EQ(ErrorWithHeader(header), "envelope: flags 0x2 are not allowed");
  EXPECT_THROW(Encode({.flags = 16}, {}), InvalidArgument);
}

TEST(EnvelopeTest, LostAddedOrChangedPartsAreErrors) {
  Message lost = Encode(TestHeader(), TestPayload());
  lost.pop_back();
  EXPECT_THROW(Decode(lost), MalformedMessage);

  Message added = Encode(TestHeader(), TestPayload());
  added.push_back(Frame());
  EXPECT_THROW(Decode(added), MalformedMessage);

  Message changed = Encode(TestHeader(), TestPayload());
  changed[2] = Frame::Copy("sEcond");
  try {
    Decode(changed);
    FAIL() << "no MalformedMessage";
  } catch (const MalformedMessage& e) {
    EXPECT_TRUE(
        std::string(e.what()).starts_with("envelope: payload checksum is 0x"))
        << e.what();
  }
  // strong guarantee: the parts are still there
  EXPECT_EQ(changed[1].text(), "first part");
}

TEST(EnvelopeTest, LimitsHold) {
  Message message = Encode(TestHeader(), TestPayload());
  EXPECT_THROW(Decode(message, {.max_parts = 1}), MalformedMessage);
  try {
    Decode(message, {.max_payload_bytes = 15});
    FAIL() << "no MalformedMessage";
  } catch (const MalformedMessage& e) {
    EXPECT_STREQ(e.what(),
                 "envelope: payload of 2 parts, 16 bytes; at most 1024 parts, "
                 "15 bytes are allowed");
  }
  EXPECT_EQ(
      Decode(message, {.max_parts = 2, .max_payload_bytes = 16}).payload.size(),
      2u);
}

TEST(EnvelopeTest, ErrorBodyComesBackAndALongTextIsCut) {
  const ErrorBody body{ErrorCode::kBusy, "try later"};
  const ErrorBody decoded = DecodeMessage<ErrorBody>(EncodeMessage(body));
  EXPECT_EQ(decoded.code, ErrorCode::kBusy);
  EXPECT_EQ(decoded.text, "try later");

  const ErrorBody long_body{ErrorCode::kFailed, std::string(10000, 'x')};
  EXPECT_EQ(DecodeMessage<ErrorBody>(EncodeMessage(long_body)).text.size(),
            4096u);
  EXPECT_THROW(DecodeMessage<ErrorBody>({}), MalformedMessage);
  EXPECT_EQ(ToString(ErrorCode::kShuttingDown), "kShuttingDown");
  EXPECT_EQ(ToString(static_cast<ErrorCode>(77)), "error 77");
}

// A name goes into logs: a line break would forge lines.
TEST(EnvelopeTest, HelloRefusesNamesThatAreNotPrintable) {
  const HelloBody good{"replay", 3, "actor-3"};
  const HelloBody decoded = DecodeMessage<HelloBody>(EncodeMessage(good));
  EXPECT_EQ(decoded.protocol_name, "replay");
  EXPECT_EQ(decoded.protocol_version, 3u);
  EXPECT_EQ(decoded.sender_name, "actor-3");

  const HelloBody bad{"replay", 3, "actor\n3"};
  EXPECT_THROW(DecodeMessage<HelloBody>(EncodeMessage(bad)), MalformedMessage);
  const HelloBody long_name{"replay", 3, std::string(129, 'a')};
  EXPECT_THROW(DecodeMessage<HelloBody>(EncodeMessage(long_name)),
               MalformedMessage);
}

TEST(EnvelopeTest, SchemaHashIsFnv1aOfNameAndTable) {
  // FNV-1a of the three bytes "a", 0, "b", by hand
  uint64_t hash = 14695981039346656037u;
  for (const uint64_t byte : {0x61u, 0x00u, 0x62u}) {
    hash = (hash ^ byte) * 1099511628211u;
  }
  const Protocol protocol = Protocol::FromTable("a", 1, "b");
  EXPECT_EQ(protocol.schema_hash, hash);
  EXPECT_NE(Protocol::FromTable("ab", 1, "").schema_hash, hash);
  EXPECT_EQ((Protocol{"replay", 2, 0xab}).ToString(),
            "replay version 2 (schema 0x00000000000000ab)");
}

TEST(EnvelopeTest, RandomIdsDiffer) { EXPECT_NE(RandomId(), RandomId()); }

}  // namespace
}  // namespace replicant::rpc
