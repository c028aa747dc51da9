#include "replay/format/protocol.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"
#include "tests/support/unwrapped.h"

namespace replicant::replay {
namespace {

using rpc::MalformedMessage;
using rpc::Message;

std::vector<std::byte> Bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(ReplayProtocolTest, EveryMessageComesBackAsItWent) {
  const ServiceInfo info{{.observation_bytes = 24, .action_bytes = 8},
                         64,
                         {{"default", 3, 3, 0.99}, {"queue", 1, 1, 1.0}}};
  EXPECT_EQ(rpc::DecodeMessage<ServiceInfo>(rpc::EncodeMessage(info)), info);

  const auto first = Bytes("abc");
  const auto second = Bytes("de");
  const Message insert = InsertRequest{
      .writer = 7,
      .base_sequence = 3,
      .base_steps = 40,
      .first_sequence = 5,
      .wait_ms = 100,
      .blocks = {
          first, {}, second}}.Encode();
  const InsertRequest back = InsertRequest::Decode(insert);
  EXPECT_EQ(back.writer, 7u);
  EXPECT_EQ(back.base_sequence, 3u);
  EXPECT_EQ(back.base_steps, 40u);
  EXPECT_EQ(back.first_sequence, 5u);
  EXPECT_EQ(back.wait_ms, 100u);
  ASSERT_EQ(back.blocks.size(), 3u);
  EXPECT_TRUE(std::ranges::equal(back.blocks[0], first));
  EXPECT_TRUE(back.blocks[1].empty());
  EXPECT_TRUE(std::ranges::equal(back.blocks[2], second));

  const InsertAck ack{InsertState::kNoRoom, 9, 12, {8, 9}};
  EXPECT_EQ(rpc::DecodeMessage<InsertAck>(rpc::EncodeMessage(ack)), ack);
  EXPECT_EQ(rpc::DecodeMessage<CloseWriterRequest>(
                rpc::EncodeMessage(CloseWriterRequest{5}))
                .writer,
            5u);
  const auto sample = rpc::DecodeMessage<SampleRequest>(
      rpc::EncodeMessage(SampleRequest{"default", 256, 500}));
  EXPECT_EQ(sample.table, "default");
  EXPECT_EQ(sample.count, 256u);
  EXPECT_EQ(sample.wait_ms, 500u);
  EXPECT_FALSE(sample.place.has_value());
  EXPECT_EQ(sample.window, 0u);
  const BatchPlace place = {
      .memory = {.token = {1, 2}, .size_bytes = 3, .pid = 4, .fd = 5},
      .observations = 6,
      .next_observations = 7,
      .actions = 8,
      .frames = 9,
      .next_frames = 10,
      .segments = 11,
      .segments_bytes = 12,
      .first_row = 13};
  const auto placed = rpc::DecodeMessage<SampleRequest>(rpc::EncodeMessage(
      SampleRequest{"default", 256, 500, place, /*window=*/8}));
  EXPECT_EQ(placed.place, place);
  EXPECT_EQ(placed.window, 8u);
  EXPECT_FALSE(placed.kept.has_value());
  const KeptRange kept{.token = 3, .first_serial = 4, .last_serial = 9};
  SampleRequest keeps{"default", 256, 500};
  keeps.kept = kept;
  EXPECT_EQ(rpc::DecodeMessage<SampleRequest>(rpc::EncodeMessage(keeps)).kept,
            kept);

  const FramesRequest frames{
      .token = 3, .after_serial = 4, .room_frames = 5, .max_bytes = 6};
  EXPECT_EQ(rpc::DecodeMessage<FramesRequest>(rpc::EncodeMessage(frames)),
            frames);
  const Message blocks = FramesReply{
      .token = 3,
      .after_serial = 4,
      .last_serial = 9,
      .serials = {5, 8},
      .blocks = {first,
                 second}}.Encode();
  const FramesReply reply = FramesReply::Decode(blocks);
  EXPECT_EQ(reply.token, 3u);
  EXPECT_EQ(reply.after_serial, 4u);
  EXPECT_EQ(reply.last_serial, 9u);
  EXPECT_EQ(reply.serials, (std::vector<uint64_t>{5, 8}));
  EXPECT_TRUE(std::ranges::equal(reply.blocks[1], second));

  const auto update = UpdateRequest::Decode(
      UpdateRequest{"t", {{{1, 2}, 0.5f}, {{3, 4}, 1.5f}}}.Encode());
  ASSERT_EQ(update.updates.size(), 2u);
  EXPECT_EQ(update.updates[1].key, (ItemKey{3, 4}));
  EXPECT_EQ(update.updates[1].priority, 1.5f);
  EXPECT_EQ(rpc::DecodeMessage<UpdateReply>(rpc::EncodeMessage(UpdateReply{3}))
                .num_updated,
            3u);
  EXPECT_EQ(
      rpc::DecodeMessage<StatusReply>(rpc::EncodeMessage(StatusReply{"{}"}))
          .json,
      "{}");
  EXPECT_EQ(rpc::DecodeMessage<CheckpointRequest>(
                rpc::EncodeMessage(CheckpointRequest{9}))
                .id,
            9u);
}

TEST(ReplayProtocolTest, SaysWhatIsWrongWithAMessage) {
  const auto message = [](auto&& decode) {
    return replicant::testing::MessageOf<MalformedMessage>(decode);
  };
  EXPECT_EQ(message([] { rpc::DecodeMessage<SampleRequest>({}); }),
            "replay.sample: 0 parts, expected 1");
  EXPECT_EQ(message([] {
              rpc::DecodeMessage<SampleRequest>(
                  rpc::EncodeMessage(SampleRequest{"t", 0, 0}));
            }),
            "replay.sample: field 'count': 0 is outside [1, 65536]");
  EXPECT_EQ(message([] {
              rpc::DecodeMessage<SampleRequest>(
                  rpc::EncodeMessage(SampleRequest{"t", 1, 30001}));
            }),
            "replay.sample: field 'wait_ms': 30001 is over the limit of 30000");
  EXPECT_EQ(message([] { InsertRequest::Decode(InsertRequest{}.Encode()); }),
            "replay.insert: field 'writer' must not be 0");
  EXPECT_EQ(message([] {
              InsertRequest::Decode(
                  InsertRequest{.writer = 1, .base_sequence = 6}.Encode());
            }),
            "replay.insert: want 1 <= base_sequence <= first_sequence <= "
            "18446744073709547519, got 6 and 1");
  // a service restores an id that its configuration can hold
  for (const uint64_t id : {uint64_t{0}, uint64_t{1} << 63}) {
    EXPECT_EQ(message([id] {
                rpc::DecodeMessage<CheckpointRequest>(
                    rpc::EncodeMessage(CheckpointRequest{id}));
              }),
              fmt::format("replay.checkpoint: field 'id': {} is outside [1, "
                          "9223372036854775807]",
                          id));
  }
  EXPECT_EQ(message([] {
              rpc::WireWriter writer;
              writer.WriteString("t");
              writer.WriteArray<uint32_t>(std::vector<uint32_t>{1, 2});
              writer.WriteArray<uint32_t>(std::vector<uint32_t>{1});
              writer.WriteArray<float>(std::vector<float>{});
              UpdateRequest::Decode(rpc::MakeMessage(writer.Finish()));
            }),
            "replay.update: 2 slots, 1 generations and 0 priorities");
}

TEST(ReplayProtocolTest, SerialsOfFramesAscendWithinTheirRange) {
  const auto message = [](const FramesReply& reply) {
    return replicant::testing::MessageOf<MalformedMessage>(
        [&] { FramesReply::Decode(reply.Encode()); });
  };
  const auto block = Bytes("abc");
  EXPECT_EQ(message({.after_serial = 4,
                     .last_serial = 9,
                     .serials = {8, 8},
                     .blocks = {block, block}}),
            "replay.frames reply: field 'serial': 8 after 8, in (4, 9]");
  EXPECT_EQ(message({.after_serial = 4,
                     .last_serial = 9,
                     .serials = {10},
                     .blocks = {block}}),
            "replay.frames reply: field 'serial': 10 after 4, in (4, 9]");
  EXPECT_EQ(message({.after_serial = 4, .last_serial = 3}),
            "replay.frames reply: last_serial 3 < after_serial 4");
  EXPECT_EQ(message({.last_serial = 9, .serials = {8}}),
            "replay.frames reply: 1 serials and 0 blocks");
}

TEST(ReplayProtocolTest, BlocksMustFillTheirPartExactly) {
  Message insert =
      InsertRequest{.writer = 1, .blocks = {Bytes("abc")}}.Encode();
  insert[1] = rpc::Frame::Copy("ab");
  EXPECT_EQ(replicant::testing::MessageOf<MalformedMessage>(
                [&] { InsertRequest::Decode(insert); }),
            "replay.insert blocks: field 'block' at offset 0: expected 3 "
            "bytes, 2 are left");
  insert[1] = rpc::Frame::Copy("abcd");
  EXPECT_EQ(replicant::testing::MessageOf<MalformedMessage>(
                [&] { InsertRequest::Decode(insert); }),
            "replay.insert blocks: 1 bytes after the last field, at offset 3");
}

// The answer to a sample is of replay/format/batch_message.h.
TEST(ReplayProtocolTest, TheTableListsTheFieldsOfTheMessages) {
  using replicant::testing::ListFields;
  std::vector<uint32_t> sizes;
  UpdateRequest::Columns columns;
  const std::string table =
      replicant::testing::Unwrapped(ReplayProtocol().table);
  for (const std::string& lines :
       {"1 describe request: no part reply: " + ListFields<ServiceInfo>() +
            " 2 insert request part 0: " + ListFields<InsertRequest>(&sizes) +
            " request part 1: ",
        " without gaps reply: " + ListFields<InsertAck>() +
            " 3 close writer request: " + ListFields<CloseWriterRequest>() +
            " reply: no part 4 sample request: " + ListFields<SampleRequest>() +
            " reply part 0: ",
        std::string(" 5 update priorities request: "),
        " reply: " + ListFields<UpdateReply>() + " 6 status ",
        " 7 checkpoint request: " + ListFields<CheckpointRequest>() +
            " reply: no part 8 frames request: " + ListFields<FramesRequest>() +
            " reply part 0: " + ListFields<FramesReply>(&sizes) +
            " reply part 1: "}) {
    EXPECT_NE(table.find(lines), std::string::npos) << lines;
  }
  EXPECT_NE(table.find(ListFields<UpdateRequest>(&columns) + ", of one length"),
            std::string::npos);
  EXPECT_EQ(ListFields<StatusReply>(), "string json");
}

// A client that is written from the document speaks the same schema.
TEST(ReplayProtocolTest, TheDocumentHoldsTheMessageTableWordForWord) {
  std::ifstream file(std::string(REPLICANT_DOCS) + "/replay_protocol.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(
      text.str().find("```\n" + std::string(ReplayProtocol().table) + "```"),
      std::string::npos);
  EXPECT_NE(
      text.str().find(fmt::format("{:#018x}", ReplayProtocol().schema_hash)),
      std::string::npos)
      << fmt::format("{:#018x}", ReplayProtocol().schema_hash);
}

}  // namespace
}  // namespace replicant::replay
