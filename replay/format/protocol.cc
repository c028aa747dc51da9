#include "replay/format/protocol.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/rpc/wire.h"

namespace replicant::replay {
namespace {

using rpc::Frame;
using rpc::MakeMessage;
using rpc::MalformedMessage;
using rpc::Message;
using rpc::WireReader;
using rpc::WireWriter;

constexpr std::string_view kMessageTable = R"(replay 2
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
    u64 next_frames, u64 segments, u64 segments_bytes, u32 first_row
  reply part 0: u8 state (0 full, 1 timeout, 2 closed), u64 table_size,
    f64 table_mass, u64 total_steps, u32 stack, u32 window H,
    bool rows_in_memory, bool segments_in_memory, arrays of one length B of
    u32 slot, u32 generation, f64 probability, f32 priority, f32 reward,
    f32 discount, u32 times_sampled, u32 step, u32 n, u32 num_segments,
    then arrays of the length B H of f32 step_reward, f32 step_discount,
    then arrays of one length, the sum of num_segments, of
    u32 first_step, u32 num_frames, u32 skip, u32 segment_bytes
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
)";

uint64_t ReadWriter(WireReader& reader, std::string_view message) {
  const auto writer = reader.Read<uint64_t>("writer");
  if (writer == 0) {
    throw MalformedMessage(
        fmt::format("{}: field 'writer' must not be 0", message));
  }
  return writer;
}

uint32_t ReadWaitMs(WireReader& reader, std::string_view message) {
  const auto wait_ms = reader.Read<uint32_t>("wait_ms");
  if (wait_ms > kMaxWaitMs) {
    throw MalformedMessage(
        fmt::format("{}: field 'wait_ms': {} is over the limit of {}", message,
                    wait_ms, kMaxWaitMs));
  }
  return wait_ms;
}

}  // namespace

std::string_view ReplayMessageTable() { return kMessageTable; }

const rpc::Protocol& ReplayProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("replay", 2, kMessageTable);
  return protocol;
}

// --- describe ---

Message ServiceInfo::Encode() const {
  WireWriter writer;
  writer.Write(shape.observation_bytes);
  writer.Write(shape.action_bytes);
  writer.Write(shape.frame_bytes);
  writer.Write(credits);
  writer.Write(static_cast<uint32_t>(tables.size()));
  for (const TableInfo& table : tables) {
    writer.WriteString(table.name);
    writer.Write(table.n_step);
    writer.Write(table.stack);
    writer.Write(table.discount);
    writer.Write(table.window);
    writer.Write(table.period);
  }
  return MakeMessage(writer.Finish());
}

ServiceInfo ServiceInfo::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.describe reply";
  WireReader reader(kName, payload);
  ServiceInfo info;
  info.shape.observation_bytes = reader.Read<int64_t>("observation_bytes");
  info.shape.action_bytes = reader.Read<int64_t>("action_bytes");
  info.shape.frame_bytes = reader.Read<int64_t>("frame_bytes");
  info.credits = reader.Read<uint32_t>("credits");
  const auto num_tables = reader.Read<uint32_t>("num_tables");
  if (num_tables > kMaxTables) {
    throw MalformedMessage(
        fmt::format("{}: field 'num_tables': {} is over the limit of {}", kName,
                    num_tables, kMaxTables));
  }
  for (uint32_t i = 0; i < num_tables; ++i) {
    TableInfo table;
    table.name = reader.ReadString("name", kMaxNameBytes);
    table.n_step = reader.Read<uint32_t>("n_step");
    table.stack = reader.Read<uint32_t>("stack");
    table.discount = reader.Read<double>("discount");
    table.window = reader.Read<uint32_t>("window");
    table.period = reader.Read<uint32_t>("period");
    info.tables.push_back(std::move(table));
  }
  reader.Finish();
  return info;
}

// --- insert ---

Message InsertRequest::Encode() const {
  if (blocks.size() > kMaxGroupsPerInsert) {
    throw InvalidArgument(
        fmt::format("replay.insert: {} step groups in one message; at most {} "
                    "are allowed",
                    blocks.size(), kMaxGroupsPerInsert));
  }
  std::vector<uint32_t> sizes;
  size_t total = 0;
  for (const auto& block : blocks) {
    sizes.push_back(static_cast<uint32_t>(block.size()));
    total += block.size();
  }
  WireWriter header;
  header.Write(writer);
  header.Write(base_sequence);
  header.Write(base_steps);
  header.Write(first_sequence);
  header.Write(wait_ms);
  header.WriteArray<uint32_t>(sizes);
  Frame body(total);
  std::byte* to = body.mutable_bytes().data();
  for (const auto& block : blocks) {
    if (block.empty()) continue;
    std::memcpy(to, block.data(), block.size());
    to += block.size();
  }
  Message message;
  message.push_back(header.Finish());
  message.push_back(std::move(body));
  return message;
}

InsertRequest InsertRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.insert";
  rpc::CheckNumParts(kName, payload, 2);
  WireReader reader(kName, payload[0].bytes());
  InsertRequest request;
  request.writer = ReadWriter(reader, kName);
  request.base_sequence = reader.Read<uint64_t>("base_sequence");
  request.base_steps = reader.Read<uint64_t>("base_steps");
  request.first_sequence = reader.Read<uint64_t>("first_sequence");
  request.wait_ms = ReadWaitMs(reader, kName);
  const auto sizes =
      reader.ReadArray<uint32_t>("block_bytes", kMaxGroupsPerInsert);
  reader.Finish();
  if (request.base_steps > kMaxSteps) {
    throw MalformedMessage(
        fmt::format("{}: field 'base_steps': {} is over the limit of {}", kName,
                    request.base_steps, kMaxSteps));
  }
  // the last sequence must not wrap around
  constexpr uint64_t kMaxSequence = ~uint64_t{0} - kMaxGroupsPerInsert;
  if (request.base_sequence == 0 ||
      request.first_sequence < request.base_sequence ||
      request.first_sequence > kMaxSequence) {
    throw MalformedMessage(fmt::format(
        "{}: want 1 <= base_sequence <= first_sequence <= {}, got "
        "{} and {}",
        kName, kMaxSequence, request.base_sequence, request.first_sequence));
  }
  WireReader body("replay.insert blocks", payload[1].bytes());
  for (const uint32_t size : sizes) {
    request.blocks.push_back(body.ReadRaw("block", size));
  }
  body.Finish();
  return request;
}

std::string_view ToString(InsertState state) {
  switch (state) {
    case InsertState::kTaken:
      return "taken";
    case InsertState::kWaiting:
      return "waiting";
    case InsertState::kNoRoom:
      return "no room";
    case InsertState::kNoCredits:
      return "no credits";
    case InsertState::kOutOfOrder:
      return "out of order";
    case InsertState::kClosed:
      return "closed";
  }
  return "?";
}

Message InsertAck::Encode() const {
  WireWriter writer;
  writer.Write(static_cast<uint8_t>(state));
  writer.Write(last_sequence);
  writer.Write(credits);
  writer.WriteArray<uint64_t>(dropped);
  return MakeMessage(writer.Finish());
}

InsertAck InsertAck::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.insert reply";
  WireReader reader(kName, payload);
  const auto state = reader.Read<uint8_t>("state");
  if (state > static_cast<uint8_t>(InsertState::kClosed)) {
    throw MalformedMessage(
        fmt::format("{}: field 'state': no state {}", kName, state));
  }
  InsertAck ack;
  ack.state = static_cast<InsertState>(state);
  ack.last_sequence = reader.Read<uint64_t>("last_sequence");
  ack.credits = reader.Read<uint32_t>("credits");
  ack.dropped = reader.ReadArray<uint64_t>("dropped", kMaxGroupsPerInsert);
  reader.Finish();
  return ack;
}

Message CloseWriterRequest::Encode() const {
  WireWriter out;
  out.Write(writer);
  return MakeMessage(out.Finish());
}

CloseWriterRequest CloseWriterRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.close_writer";
  WireReader reader(kName, payload);
  const CloseWriterRequest request{ReadWriter(reader, kName)};
  reader.Finish();
  return request;
}

// --- sample, update, status ---

Message SampleRequest::Encode() const {
  WireWriter writer;
  writer.WriteString(table);
  writer.Write(count);
  writer.Write(wait_ms);
  writer.Write(window);
  writer.WriteBool(place.has_value());
  if (place) {
    writer.Write(place->memory.token[0]);
    writer.Write(place->memory.token[1]);
    writer.Write(place->memory.size_bytes);
    writer.Write(place->memory.pid);
    writer.Write(place->memory.fd);
    writer.Write(place->observations);
    writer.Write(place->next_observations);
    writer.Write(place->actions);
    writer.Write(place->frames);
    writer.Write(place->next_frames);
    writer.Write(place->segments);
    writer.Write(place->segments_bytes);
    writer.Write(place->first_row);
  }
  return MakeMessage(writer.Finish());
}

namespace {

BatchPlace ReadPlace(WireReader& reader) {
  BatchPlace place;
  place.memory.token[0] = reader.Read<uint64_t>("token 0");
  place.memory.token[1] = reader.Read<uint64_t>("token 1");
  place.memory.size_bytes = reader.Read<uint64_t>("memory_bytes");
  place.memory.pid = reader.Read<uint32_t>("pid");
  place.memory.fd = reader.Read<uint32_t>("fd");
  place.observations = reader.Read<uint64_t>("observations");
  place.next_observations = reader.Read<uint64_t>("next_observations");
  place.actions = reader.Read<uint64_t>("actions");
  place.frames = reader.Read<uint64_t>("frames");
  place.next_frames = reader.Read<uint64_t>("next_frames");
  place.segments = reader.Read<uint64_t>("segments");
  place.segments_bytes = reader.Read<uint64_t>("segments_bytes");
  place.first_row = reader.Read<uint32_t>("first_row");
  return place;
}

}  // namespace

SampleRequest SampleRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.sample";
  WireReader reader(kName, payload);
  SampleRequest request;
  request.table = reader.ReadString("table", kMaxNameBytes);
  request.count = reader.Read<uint32_t>("count");
  if (request.count == 0 || request.count > kMaxItemsPerBatch) {
    throw MalformedMessage(
        fmt::format("{}: field 'count': {} is outside [1, {}]", kName,
                    request.count, kMaxItemsPerBatch));
  }
  request.wait_ms = ReadWaitMs(reader, kName);
  request.window = reader.Read<uint32_t>("window");
  if (reader.ReadBool("has_place")) request.place = ReadPlace(reader);
  reader.Finish();
  return request;
}

Message UpdateRequest::Encode() const {
  std::vector<uint32_t> slots, generations;
  std::vector<float> priorities;
  for (const PriorityUpdate& update : updates) {
    slots.push_back(update.key.slot);
    generations.push_back(update.key.generation);
    priorities.push_back(update.priority);
  }
  WireWriter writer(64 + table.size() + 12 * updates.size());
  writer.WriteString(table);
  writer.WriteArray<uint32_t>(slots);
  writer.WriteArray<uint32_t>(generations);
  writer.WriteArray<float>(priorities);
  return MakeMessage(writer.Finish());
}

UpdateRequest UpdateRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.update";
  WireReader reader(kName, payload);
  UpdateRequest request;
  request.table = reader.ReadString("table", kMaxNameBytes);
  const auto slots = reader.ReadArray<uint32_t>("slot", kMaxUpdatesPerMessage);
  const auto generations =
      reader.ReadArray<uint32_t>("generation", kMaxUpdatesPerMessage);
  const auto priorities =
      reader.ReadArray<float>("priority", kMaxUpdatesPerMessage);
  reader.Finish();
  if (generations.size() != slots.size() || priorities.size() != slots.size()) {
    throw MalformedMessage(
        fmt::format("{}: {} slots, {} generations and {} priorities", kName,
                    slots.size(), generations.size(), priorities.size()));
  }
  request.updates.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    request.updates.push_back({{slots[i], generations[i]}, priorities[i]});
  }
  return request;
}

Message UpdateReply::Encode() const {
  WireWriter writer;
  writer.Write(num_updated);
  return MakeMessage(writer.Finish());
}

UpdateReply UpdateReply::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.update reply";
  WireReader reader(kName, payload);
  const UpdateReply reply{reader.Read<uint32_t>("num_updated")};
  reader.Finish();
  return reply;
}

Message CheckpointRequest::Encode() const {
  WireWriter writer;
  writer.Write(id);
  return MakeMessage(writer.Finish());
}

CheckpointRequest CheckpointRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.checkpoint";
  WireReader reader(kName, payload);
  const CheckpointRequest request{reader.Read<uint64_t>("id")};
  reader.Finish();
  if (request.id == 0 || request.id > kMaxCheckpointId) {
    throw MalformedMessage(fmt::format("{}: field 'id': {} is outside [1, {}]",
                                       kName, request.id, kMaxCheckpointId));
  }
  return request;
}

Message StatusReply::Encode() const {
  WireWriter writer;
  writer.WriteString(json);
  return MakeMessage(writer.Finish());
}

StatusReply StatusReply::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kName = "replay.status reply";
  WireReader reader(kName, payload);
  StatusReply reply{reader.ReadString("json", kMaxStatusBytes)};
  reader.Finish();
  return reply;
}

}  // namespace replicant::replay
