#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rpc/envelope.h"
#include "base/rpc/frame.h"
#include "base/rpc/shared_memory.h"
#include "replay/format/sampled_batch.h"
#include "replay/format/step_group.h"

// The messages between a replay service and its writers and readers, inside the
// envelope of base/rpc. docs/replay_protocol.md describes the same for clients
// in other languages.
//
// Every Encode() makes the payload of a message. Every Decode() accepts any
// bytes, checks them against the limits below before it allocates, and throws
// rpc::MalformedMessage naming message and field.
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
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 40;
// The largest id that replay.restore_checkpoint can name.
inline constexpr uint64_t kMaxCheckpointId = (uint64_t{1} << 63) - 1;
// Longest time that a request may wait for its answer.
inline constexpr uint32_t kMaxWaitMs = 30'000;

// The text of the schema hash: every message with its fields, as in
// docs/replay_protocol.md, word for word.
std::string_view ReplayMessageTable();
const rpc::Protocol& ReplayProtocol();

// kDescribe: an empty request. The answer is a ServiceInfo.
struct TableInfo {
  std::string name;
  uint32_t n_step = 0;
  uint32_t stack = 0;
  double discount = 0.0;
  uint32_t window = 0;  // steps of a window; 0: the table has transitions
  uint32_t period = 1;  // steps from one window's beginning to the next

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
// never again sends a group below base_sequence. Even a restarted service
// without state thus knows the next number: max(its last + 1, base_sequence). A
// smaller number is a duplicate. A larger one is too early and is refused,
// since it would hide the groups between.
//
// A request without groups only asks for the answer.
struct InsertRequest {
  uint64_t writer = 0;  // a random number other than 0
  uint64_t base_sequence = 1;
  // Number of acknowledged, not dropped steps in groups below base_sequence.
  // Those that the service lacks were lost when it restarted.
  uint64_t base_steps = 0;
  uint64_t first_sequence = 1;
  // Longest time that the service delays the answer while the writer has no
  // credits.
  uint32_t wait_ms = 0;
  std::vector<std::span<const std::byte>> blocks;  // replay/format/step_group.h

  // Copies the blocks.
  rpc::Message Encode() const;
  // Borrows the blocks from `payload` and does not check their contents.
  static InsertRequest Decode(std::span<const rpc::Frame> payload);
};

enum class InsertState : uint8_t {
  kTaken = 0,  // all groups are in
  // All groups are in, but items wait for a rate limiter. The writer has no
  // credits until they are admitted.
  kWaiting = 1,
  // The groups after last_sequence are refused. The writer should send them
  // again:
  kNoRoom = 2,      // later, as open episodes hold all the memory
  kNoCredits = 3,   // later, as the writer waits for a rate limiter already
  kOutOfOrder = 4,  // after the groups before them
  kClosed = 5,      // to the next service, as this one ends
};
std::string_view ToString(InsertState state);

// The answer to kInsert.
struct InsertAck {
  InsertState state = InsertState::kTaken;
  // Every group of the writer up to this one is inserted or was dropped.
  uint64_t last_sequence = 0;
  // Groups that the writer may send beyond last_sequence.
  uint32_t credits = 0;
  // Groups of this request that continue no known episode. The rest of their
  // episode is lost too.
  std::vector<uint64_t> dropped;

  rpc::Message Encode() const;
  static InsertAck Decode(std::span<const rpc::Frame> payload);
  bool operator==(const InsertAck&) const = default;
};

// kCloseWriter: the writer ends. The service drops its open episode. The answer
// is empty.
struct CloseWriterRequest {
  uint64_t writer = 0;

  rpc::Message Encode() const;
  static CloseWriterRequest Decode(std::span<const rpc::Frame> payload);
};

// The place of a batch in its reader's memory. Row r of an array begins at the
// array's offset + r times the row size. The batch takes the rows from
// first_row on. Offsets are in SharedMemory::bytes().
struct BatchPlace {
  rpc::SharedMemoryHandle memory;
  // Rows of BatchForm::BytesOf().
  uint64_t observations = 0;
  uint64_t next_observations = 0;
  uint64_t actions = 0;
  uint64_t frames = 0;
  uint64_t next_frames = 0;
  // Space for the segments of this batch only.
  uint64_t segments = 0;
  uint64_t segments_bytes = 0;
  uint32_t first_row = 0;

  bool operator==(const BatchPlace&) const = default;
};

// kSample: requests a batch. The answer (replay/format/batch_codec.h) is sent
// once the batch is full or wait_ms have passed.
struct SampleRequest {
  std::string table;
  uint32_t count = 0;  // in [1, kMaxItemsPerBatch]
  uint32_t wait_ms = 0;
  // Memory that the reader shares. A service that cannot map it ignores the
  // offer.
  std::optional<BatchPlace> place = {};
  // Length of the table's windows, or 0 for n-step transitions. A service
  // refuses a reader with a wrong expectation.
  uint32_t window = 0;

  rpc::Message Encode() const;
  static SampleRequest Decode(std::span<const rpc::Frame> payload);
};

// kUpdate: new priorities, usually sent one way. The answer is the number of
// keys that name live items (UpdateReply).
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

// kCheckpoint: requests a checkpoint of the present state, with everything that
// its sender sent before on this connection, and nothing sent later. The
// answer, which is empty, is sent once the checkpoint is on disk.
struct CheckpointRequest {
  // Names the checkpoint for a restore; in [1, kMaxCheckpointId].
  uint64_t id = 0;

  rpc::Message Encode() const;
  static CheckpointRequest Decode(std::span<const rpc::Frame> payload);
};

}  // namespace replicant::replay
