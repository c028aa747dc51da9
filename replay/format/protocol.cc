#include "replay/format/protocol.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace replicant::replay {
namespace {

using rpc::Frame;
using rpc::Message;

constexpr std::string_view kMessageTable = R"(replay 3
1 describe
  request: no part
  reply: i64 observation_bytes, i64 action_bytes, i64 frame_bytes,
    u32 credits, u32 num_tables, num_tables x
    (string name, u32 n_step, u32 stack, f64 discount, u32 window, u32 period)
2 insert
  request part 0: u64 writer, u64 base_sequence, u64 base_steps,
    u64 first_sequence, u32 wait_ms, array of u32 block_bytes
  request part 1: the step groups "RSG1" of these lengths, without gaps
  reply: u8 state (0 taken, 1 waiting, 2 no room, 3 no credits,
    4 out of order, 5 closed), u64 last_sequence, u32 credits,
    array of u64 dropped
3 close writer
  request: u64 writer
  reply: no part
4 sample
  request: string table, u32 count, u32 wait_ms, u32 window (0 for n-step
    transitions), bool has_place and, if so,
    u64 token 0, u64 token 1, u64 memory_bytes, u32 pid, u32 fd,
    u64 observations, u64 next_observations, u64 actions, u64 frames,
    u64 next_frames, u64 segments, u64 segments_bytes, u32 first_row,
    bool has_kept and, if so,
    u64 kept_token, u64 first_serial, u64 last_serial
  reply part 0: u8 state (0 full, 1 timeout, 2 closed), u64 table_size,
    f64 table_mass, u64 total_steps, u32 stack, u32 window H,
    bool rows_in_memory, bool segments_in_memory, arrays of one length B of
    u32 slot, u32 generation, f64 probability, f32 priority, f32 reward,
    f32 discount, u32 times_sampled, u64 age, u32 step, u32 n,
    u32 num_segments,
    then arrays of the length B H of f32 step_reward, f32 step_discount,
    then arrays of one length, the sum of num_segments, of
    u32 first_step, u32 num_frames, u32 skip, u32 segment_bytes (0: kept),
    u64 serial
  reply part 1: B rows of observation_bytes (o_t), B more (o_{t+k}),
    B rows of action_bytes (a_t), without gaps; if H > 0, B (H + 1) rows of
    observation_bytes, B H rows of action_bytes; empty if rows_in_memory
  reply part 2: the segments, frame groups "RFG1", without gaps; empty if
    segments_in_memory
5 update priorities
  request: string table, array of u32 slot, array of u32 generation,
    array of f32 priority, of one length
  reply: u32 num_updated
6 status
  request: no part
  reply: string of JSON
7 checkpoint
  request: u64 id
  reply: no part
8 frames
  request: u64 kept_token, u64 after_serial, u64 room_frames, u32 max_bytes
  reply part 0: u64 kept_token, u64 after_serial, u64 last_serial,
    array of u64 serial, array of u32 block_bytes
  reply part 1: the frame groups "RFG1" of these lengths, without gaps
)";

// A message of two parts: fields that hold the lengths of the blocks, and the
// blocks without gaps.
template <class T>
Message EncodeBlocks(const T& fields) {
  std::vector<uint32_t> sizes;
  size_t total = 0;
  for (const auto& block : fields.blocks) {
    sizes.push_back(static_cast<uint32_t>(block.size()));
    total += block.size();
  }
  Message message = rpc::MakeMessage(rpc::EncodePart(fields, &sizes));
  std::byte* to = message.emplace_back(total).mutable_bytes().data();
  for (const auto& block : fields.blocks) {
    if (block.empty()) continue;
    std::memcpy(to, block.data(), block.size());
    to += block.size();
  }
  return message;
}
template <class T>
T DecodeBlocks(std::span<const Frame> payload) {
  rpc::CheckNumParts(T::kName, payload, 2);
  std::vector<uint32_t> sizes;
  T fields = rpc::DecodePart<T>(payload[0].bytes(), &sizes);
  const std::string name = fmt::format("{} blocks", T::kName);
  rpc::WireReader body(name, payload[1].bytes());
  for (const uint32_t size : sizes) {
    fields.blocks.push_back(body.ReadRaw("block", size));
  }
  body.Finish();
  return fields;
}

}  // namespace

const rpc::Protocol& ReplayProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("replay", 3, kMessageTable);
  return protocol;
}

Message InsertRequest::Encode() const {
  if (blocks.size() > kMaxChunksPerInsert) {
    throw InvalidArgument(
        fmt::format("replay.insert: {} chunks in one message; at most {} "
                    "are allowed",
                    blocks.size(), kMaxChunksPerInsert));
  }
  return EncodeBlocks(*this);
}
InsertRequest InsertRequest::Decode(std::span<const Frame> payload) {
  return DecodeBlocks<InsertRequest>(payload);
}

Message FramesReply::Encode() const { return EncodeBlocks(*this); }
FramesReply FramesReply::Decode(std::span<const Frame> payload) {
  return DecodeBlocks<FramesReply>(payload);
}

std::string_view ToString(InsertState state) {
  return kInsertStates[static_cast<size_t>(state)];
}

Message UpdateRequest::Encode() const {
  Columns columns;
  for (const PriorityUpdate& update : updates) {
    columns.slots.push_back(update.key.slot);
    columns.generations.push_back(update.key.generation);
    columns.priorities.push_back(update.priority);
  }
  return rpc::MakeMessage(rpc::EncodePart(*this, &columns));
}
UpdateRequest UpdateRequest::Decode(std::span<const Frame> payload) {
  rpc::CheckNumParts(kName, payload, 1);
  Columns columns;
  auto request = rpc::DecodePart<UpdateRequest>(payload[0].bytes(), &columns);
  request.updates.reserve(columns.slots.size());
  for (size_t i = 0; i < columns.slots.size(); ++i) {
    request.updates.push_back(
        {{columns.slots[i], columns.generations[i]}, columns.priorities[i]});
  }
  return request;
}

}  // namespace replicant::replay
