#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rpc/envelope.h"
#include "core/rpc/frame.h"
#include "core/rpc/shared_memory.h"
#include "replay/format/sampled_batch.h"
#include "replay/format/step_group.h"

// The messages between a replay service and its writers and readers, inside the
// envelope of core/rpc. docs/replay_protocol.md tells the same for people who
// write a client in another language.
//
// Every Encode() makes the payload of a message; every Decode() takes one from
// anywhere, checks all of it against the limits below before it allocates, and
// throws rpc::MalformedMessage naming the message and the field.
//
// Thread-safety: values and pure functions.
namespace replicant::replay {

enum MessageKind : uint16_t {
  kDescribeKind = 1,
  kInsertKind = 2,
  kCloseWriterKind = 3,
  kSampleKind = 4,
  kUpdateKind = 5,
  kStatusKind = 6,
  kCheckpointKind = 7,
};

inline constexpr uint32_t kMaxNameBytes = 128;
inline constexpr uint32_t kMaxTables = 64;
inline constexpr uint32_t kMaxGroupsPerInsert = 4096;
inline constexpr uint32_t kMaxItemsPerBatch = 65536;
inline constexpr uint32_t kMaxUpdatesPerMessage = 65536;
inline constexpr uint32_t kMaxStatusBytes = 1 << 20;
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 62;
// How long a request may ask to be kept until it can be answered.
inline constexpr uint32_t kMaxWaitMs = 30'000;

// The text that the schema hash is made of: every message with its fields. It
// stands word for word in docs/replay_protocol.md.
std::string_view ReplayMessageTable();
const rpc::Protocol& ReplayProtocol();

// kDescribe: an empty request; the answer says what the service holds.
struct TableInfo {
  std::string name;
  uint32_t n_step = 0;
  uint32_t stack = 0;
  double discount = 0.0;

  bool operator==(const TableInfo&) const = default;
};
struct ServiceInfo {
  StepShape shape;
  uint32_t credits = 0;  // step groups a writer may have unacknowledged
  std::vector<TableInfo> tables;

  rpc::Message Encode() const;
  static ServiceInfo Decode(std::span<const rpc::Frame> payload);
  bool operator==(const ServiceInfo&) const = default;
};

// kInsert: successive step groups of one writer.
//
// The groups are numbered first_sequence, first_sequence + 1, ... A writer
// promises never to send one below base_sequence (again); so the service knows
// which number comes next, also when it was restarted and knows nothing:
// max(its last + 1, base_sequence). A number before that was seen; one after it
// came too early and is refused, as it would hide those between.
//
// Without groups it only asks for the answer.
struct InsertRequest {
  uint64_t writer = 0;  // a random number other than 0
  uint64_t base_sequence = 1;
  // Steps of the groups below base_sequence that were acknowledged and not
  // dropped: those that a service does not have were lost when it was
  // restarted.
  uint64_t base_steps = 0;
  uint64_t first_sequence = 1;
  // The service keeps the answer back so long while the writer has no credits.
  uint32_t wait_ms = 0;
  std::vector<std::span<const std::byte>> blocks;  // replay/format/step_group.h

  // Copies the blocks.
  rpc::Message Encode() const;
  // The blocks are borrowed from `payload` and not looked into.
  static InsertRequest Decode(std::span<const rpc::Frame> payload);
};

enum class InsertState : uint8_t {
  kTaken = 0,  // all is in
  // All is in, but items wait for a rate limiter: no credits until it admits
  // them.
  kWaiting = 1,
  // These are refused from the first group on that is not in: send it again,
  kNoRoom = 2,      // later: open episodes hold all the memory
  kNoCredits = 3,   // later: the writer waits for a rate limiter already
  kOutOfOrder = 4,  // after those before it
  kClosed = 5,      // to the next service: this one ends
};
std::string_view ToString(InsertState state);

// The answer to kInsert.
struct InsertAck {
  InsertState state = InsertState::kTaken;
  // Every group of the writer up to this one is in, or was dropped.
  uint64_t last_sequence = 0;
  // Groups that the writer may send beyond last_sequence.
  uint32_t credits = 0;
  // Those of this request that continue no episode known to the service: the
  // rest of their episode is lost too.
  std::vector<uint64_t> dropped;

  rpc::Message Encode() const;
  static InsertAck Decode(std::span<const rpc::Frame> payload);
  bool operator==(const InsertAck&) const = default;
};

// kCloseWriter: the writer ends; the answer is empty. An episode that is open
// is forgotten.
struct CloseWriterRequest {
  uint64_t writer = 0;

  rpc::Message Encode() const;
  static CloseWriterRequest Decode(std::span<const rpc::Frame> payload);
};

// Where in its reader's memory a batch goes. Row r of an array begins at the
// array's offset + r times the bytes of a row; the batch takes the rows from
// first_row on. Offsets are of SharedMemory::bytes().
struct BatchPlace {
  rpc::SharedMemoryHandle memory;
  uint64_t observations = 0;       // of o_t
  uint64_t next_observations = 0;  // of o_{t+k}
  uint64_t actions = 0;
  uint64_t frames = 0;       // [stack, frame_bytes] a row, of o_t
  uint64_t next_frames = 0;  // the same of o_{t+k}
  // Room for segments, this batch's alone.
  uint64_t segments = 0;
  uint64_t segments_bytes = 0;
  uint32_t first_row = 0;

  bool operator==(const BatchPlace&) const = default;
};

// kSample: the answer is a batch (replay/format/batch_codec.h), once it is full
// or wait_ms have passed.
struct SampleRequest {
  std::string table;
  uint32_t count = 0;  // in [1, kMaxItemsPerBatch]
  uint32_t wait_ms = 0;
  // Memory that the reader shares. A service that cannot reach it answers as
  // if none had been offered.
  std::optional<BatchPlace> place = {};

  rpc::Message Encode() const;
  static SampleRequest Decode(std::span<const rpc::Frame> payload);
};

// kUpdate: new priorities; usually sent one way. The answer is the number of
// keys whose items still live (UpdateReply).
struct UpdateRequest {
  std::string table;
  std::vector<PriorityUpdate> updates;

  rpc::Message Encode() const;
  static UpdateRequest Decode(std::span<const rpc::Frame> payload);
};
struct UpdateReply {
  uint32_t num_updated = 0;

  rpc::Message Encode() const;
  static UpdateReply Decode(std::span<const rpc::Frame> payload);
};

// kStatus: an empty request; the answer is one string of JSON.
struct StatusReply {
  std::string json;

  rpc::Message Encode() const;
  static StatusReply Decode(std::span<const rpc::Frame> payload);
};

// kCheckpoint: a checkpoint of everything as it is when the message is handled;
// the answer, which is empty, comes once it is on the disk. It holds all that
// its sender sent before it on this connection, and nothing sent after.
struct CheckpointRequest {
  uint64_t id = 0;  // under which it is restored; not 0

  rpc::Message Encode() const;
  static CheckpointRequest Decode(std::span<const rpc::Frame> payload);
};

// Checks that a message has `count` parts.
void CheckNumParts(std::string_view message,
                   std::span<const rpc::Frame> payload, size_t count);

}  // namespace replicant::replay
