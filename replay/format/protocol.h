#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"
#include "base/rpc/shared_memory.h"
#include "replay/format/chunk_format.h"
#include "replay/format/sampled_batch.h"

// The messages between a replay service and its writers and readers, inside the
// envelope of base/rpc. docs/replay_protocol.md describes the same for clients
// in other languages.
//
// Each message declares its fields (base/rpc/fields.h). A message of one part
// is written by rpc::EncodeMessage() and read by rpc::DecodeMessage(); the
// others have Encode() and Decode(). What reads a message accepts any bytes,
// checks them against the limits below before it allocates, and throws
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
  kFramesKind = 8,
};

inline constexpr uint32_t kMaxNameBytes = 128;
inline constexpr uint32_t kMaxTables = 64;
inline constexpr uint32_t kMaxChunksPerInsert = 4096;
inline constexpr uint32_t kMaxItemsPerBatch = 65536;
inline constexpr uint32_t kMaxUpdatesPerMessage = 65536;
inline constexpr uint32_t kMaxStatusBytes = 1 << 20;
inline constexpr uint32_t kMaxBlocksPerReply = 4096;
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 40;
// The largest id that replay.restore_checkpoint can name.
inline constexpr uint64_t kMaxCheckpointId = (uint64_t{1} << 63) - 1;
// Longest time that a request may wait for its answer.
inline constexpr uint32_t kMaxWaitMs = 30'000;
// The last sequence of a message must not wrap around.
inline constexpr uint64_t kMaxSequence = ~uint64_t{0} - kMaxChunksPerInsert;

// Its table is in docs/replay_protocol.md, word for word.
const rpc::Protocol& ReplayProtocol();

// Fields of several messages.
template <class V>
void WriterField(V& v, uint64_t* writer) {
  v.Number("writer", writer);
  v.Check(*writer != 0, "field 'writer' must not be 0");
}
template <class V>
void WaitField(V& v, uint32_t* wait_ms) {
  v.Number("wait_ms", wait_ms);
  v.Check(*wait_ms <= kMaxWaitMs, "field 'wait_ms': {} is over the limit of {}",
          *wait_ms, kMaxWaitMs);
}

// kDescribe: an empty request. The answer is a ServiceInfo.
struct TableInfo {
  std::string name;
  uint32_t n_step = 0;
  uint32_t stack = 0;
  double discount = 0.0;
  uint32_t window = 0;  // steps of a window; 0: the table has transitions
  uint32_t period = 1;  // steps from one window's beginning to the next

  template <class V>
  void Fields(V& v) {
    v.String("name", &name, kMaxNameBytes);
    v.Number("n_step", &n_step);
    v.Number("stack", &stack);
    v.Number("discount", &discount);
    v.Number("window", &window);
    v.Number("period", &period);
  }
  bool operator==(const TableInfo&) const = default;
};
struct ServiceInfo {
  static constexpr std::string_view kName = "replay.describe reply";
  StepShape shape;
  uint32_t credits = 0;  // chunks a writer may have unacknowledged
  std::vector<TableInfo> tables;

  template <class V>
  void Fields(V& v) {
    v.Number("observation_bytes", &shape.observation_bytes);
    v.Number("action_bytes", &shape.action_bytes);
    v.Number("frame_bytes", &shape.frame_bytes);
    v.Number("credits", &credits);
    v.List("num_tables", &tables, kMaxTables);
  }
  bool operator==(const ServiceInfo&) const = default;
};

// kInsert: successive chunks of one writer.
//
// The chunks are numbered first_sequence, first_sequence + 1, ... A writer
// never again sends a chunk below base_sequence. Even a restarted service
// without state thus knows the next number: max(its last + 1, base_sequence). A
// smaller number is a duplicate. A larger one is too early and is refused,
// since it would hide the chunks between.
//
// A request without chunks only asks for the answer.
struct InsertRequest {
  static constexpr std::string_view kName = "replay.insert";
  uint64_t writer = 0;  // a random number other than 0
  uint64_t base_sequence = 1;
  // Number of acknowledged, not dropped steps in chunks below base_sequence.
  // Those that the service lacks were lost when it restarted.
  uint64_t base_steps = 0;
  uint64_t first_sequence = 1;
  // Longest time that the service delays the answer while the writer has no
  // credits.
  uint32_t wait_ms = 0;
  std::vector<std::span<const std::byte>> blocks;  // replay/format/chunk.h

  // Those of part 0, which has the lengths of the blocks.
  template <class V>
  void Fields(V& v, std::vector<uint32_t>* block_bytes) {
    WriterField(v, &writer);
    v.Number("base_sequence", &base_sequence);
    v.Number("base_steps", &base_steps);
    v.Check(base_steps <= kMaxSteps,
            "field 'base_steps': {} is over the limit of {}", base_steps,
            kMaxSteps);
    v.Number("first_sequence", &first_sequence);
    v.Check(base_sequence > 0 && first_sequence >= base_sequence &&
                first_sequence <= kMaxSequence,
            "want 1 <= base_sequence <= first_sequence <= {}, got {} and {}",
            kMaxSequence, base_sequence, first_sequence);
    WaitField(v, &wait_ms);
    v.Array("block_bytes", block_bytes, kMaxChunksPerInsert);
  }
  // Copies the blocks.
  rpc::Message Encode() const;
  // Borrows the blocks from `payload` and does not check their contents.
  static InsertRequest Decode(std::span<const rpc::Frame> payload);
};

enum class InsertState : uint8_t {
  kTaken = 0,  // all chunks are in
  // All chunks are in, but items wait for a rate limiter. The writer has no
  // credits until they are admitted.
  kWaiting = 1,
  // The chunks after last_sequence are refused. The writer should send them
  // again:
  kNoRoom = 2,      // later, as open episodes hold all the memory
  kNoCredits = 3,   // later, as the writer waits for a rate limiter already
  kOutOfOrder = 4,  // after the chunks before them
  kClosed = 5,      // to the next service, as this one ends
};
inline constexpr std::string_view kInsertStates[] = {
    "taken", "waiting", "no room", "no credits", "out of order", "closed"};
// One of these names.
std::string_view ToString(InsertState state);

// The answer to kInsert.
struct InsertAck {
  static constexpr std::string_view kName = "replay.insert reply";
  InsertState state = InsertState::kTaken;
  // Every chunk of the writer up to this one is inserted or was dropped.
  uint64_t last_sequence = 0;
  // Chunks that the writer may send beyond last_sequence.
  uint32_t credits = 0;
  // Chunks of this request that continue no known episode. The rest of their
  // episode is lost too.
  std::vector<uint64_t> dropped;

  template <class V>
  void Fields(V& v) {
    v.Enum("state", &state, kInsertStates);
    v.Number("last_sequence", &last_sequence);
    v.Number("credits", &credits);
    v.Array("dropped", &dropped, kMaxChunksPerInsert);
  }
  bool operator==(const InsertAck&) const = default;
};

// kCloseWriter: the writer ends. The service drops its open episode. The answer
// is empty.
struct CloseWriterRequest {
  static constexpr std::string_view kName = "replay.close_writer";
  uint64_t writer = 0;

  template <class V>
  void Fields(V& v) {
    WriterField(v, &writer);
  }
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

  template <class V>
  void Fields(V& v) {
    v.Number("token 0", &memory.token[0]);
    v.Number("token 1", &memory.token[1]);
    v.Number("memory_bytes", &memory.size_bytes);
    v.Number("pid", &memory.pid);
    v.Number("fd", &memory.fd);
    v.Number("observations", &observations);
    v.Number("next_observations", &next_observations);
    v.Number("actions", &actions);
    v.Number("frames", &frames);
    v.Number("next_frames", &next_frames);
    v.Number("segments", &segments);
    v.Number("segments_bytes", &segments_bytes);
    v.Number("first_row", &first_row);
  }
  bool operator==(const BatchPlace&) const = default;
};

// Chunks whose frame blocks a reader keeps: all with a serial in [first_serial,
// last_serial] in the service that gave the token. Another service does not
// heed it. None if last_serial < first_serial.
struct KeptRange {
  uint64_t token = 0;
  uint64_t first_serial = 1;
  uint64_t last_serial = 0;

  template <class V>
  void Fields(V& v) {
    v.Number("kept_token", &token);
    v.Number("first_serial", &first_serial);
    v.Number("last_serial", &last_serial);
  }
  bool Holds(uint64_t serial) const {
    return serial >= first_serial && serial <= last_serial;
  }
  bool operator==(const KeptRange&) const = default;
};

// kSample: requests a batch. The answer (replay/format/batch_codec.h) is sent
// once the batch is full or wait_ms have passed.
struct SampleRequest {
  static constexpr std::string_view kName = "replay.sample";
  std::string table;
  uint32_t count = 0;  // in [1, kMaxItemsPerBatch]
  uint32_t wait_ms = 0;
  // Memory that the reader shares. A service that cannot map it ignores the
  // offer.
  std::optional<BatchPlace> place = {};
  // Length of the table's windows, or 0 for n-step transitions. A service
  // refuses a reader with a wrong expectation.
  uint32_t window = 0;
  // Frames that the answer may leave out.
  std::optional<KeptRange> kept = {};

  template <class V>
  void Fields(V& v) {
    v.String("table", &table, kMaxNameBytes);
    v.Number("count", &count);
    v.Check(count > 0 && count <= kMaxItemsPerBatch,
            "field 'count': {} is outside [1, {}]", count, kMaxItemsPerBatch);
    WaitField(v, &wait_ms);
    v.Number("window", &window, "0 for n-step transitions");
    v.Optional("has_place", &place);
    v.Optional("has_kept", &kept);
  }
};

// kUpdate: new priorities, usually sent one way. The answer is the number of
// keys that name live items (UpdateReply).
struct UpdateRequest {
  static constexpr std::string_view kName = "replay.update";
  // The updates as they travel.
  struct Columns {
    std::vector<uint32_t> slots, generations;
    std::vector<float> priorities;
  };

  std::string table;
  std::vector<PriorityUpdate> updates;

  template <class V>
  void Fields(V& v, Columns* c) {
    v.String("table", &table, kMaxNameBytes);
    v.Array("slot", &c->slots, kMaxUpdatesPerMessage);
    v.Array("generation", &c->generations, kMaxUpdatesPerMessage);
    v.Array("priority", &c->priorities, kMaxUpdatesPerMessage);
    v.Check(c->generations.size() == c->slots.size() &&
                c->priorities.size() == c->slots.size(),
            "{} slots, {} generations and {} priorities", c->slots.size(),
            c->generations.size(), c->priorities.size());
  }
  rpc::Message Encode() const;
  static UpdateRequest Decode(std::span<const rpc::Frame> payload);
};
struct UpdateReply {
  static constexpr std::string_view kName = "replay.update reply";
  uint32_t num_updated = 0;

  template <class V>
  void Fields(V& v) {
    v.Number("num_updated", &num_updated);
  }
};

// kStatus: an empty request; the answer is one string of JSON.
struct StatusReply {
  static constexpr std::string_view kName = "replay.status reply";
  std::string json;

  template <class V>
  void Fields(V& v) {
    v.String("json", &json, kMaxStatusBytes);
  }
};

// kCheckpoint: requests a checkpoint of the present state, with everything that
// its sender sent before on this connection, and nothing sent later. The
// answer, which is empty, is sent once the checkpoint is on disk.
struct CheckpointRequest {
  static constexpr std::string_view kName = "replay.checkpoint";
  // Names the checkpoint for a restore; in [1, kMaxCheckpointId].
  uint64_t id = 0;

  template <class V>
  void Fields(V& v) {
    v.Number("id", &id);
    v.Check(id > 0 && id <= kMaxCheckpointId,
            "field 'id': {} is outside [1, {}]", id, kMaxCheckpointId);
  }
};

// kFrames: requests frame blocks in the order of their chunks, for a reader
// that keeps them.
struct FramesRequest {
  static constexpr std::string_view kName = "replay.frames";
  // The token of the answer before, and its last_serial; 0: none. A service
  // with another token begins with the newest room_frames frames.
  uint64_t token = 0;
  uint64_t after_serial = 0;
  uint64_t room_frames = 0;
  // Of all blocks; one block is sent even if it is longer.
  uint32_t max_bytes = 0;

  template <class V>
  void Fields(V& v) {
    v.Number("kept_token", &token);
    v.Number("after_serial", &after_serial);
    v.Number("room_frames", &room_frames);
    v.Number("max_bytes", &max_bytes);
  }
  bool operator==(const FramesRequest&) const = default;
};

// The answer: the blocks of all chunks with serials in (after_serial,
// last_serial] that the service has.
struct FramesReply {
  static constexpr std::string_view kName = "replay.frames reply";
  uint64_t token = 0;
  uint64_t after_serial = 0;
  uint64_t last_serial = 0;
  std::vector<uint64_t> serials;  // ascending
  std::vector<std::span<const std::byte>> blocks;

  // Those of part 0, which has the lengths of the blocks.
  template <class V>
  void Fields(V& v, std::vector<uint32_t>* block_bytes) {
    v.Number("kept_token", &token);
    v.Number("after_serial", &after_serial);
    v.Number("last_serial", &last_serial);
    v.Array("serial", &serials, kMaxBlocksPerReply);
    v.Array("block_bytes", block_bytes, kMaxBlocksPerReply);
    v.Check(block_bytes->size() == serials.size(), "{} serials and {} blocks",
            serials.size(), block_bytes->size());
    uint64_t previous = after_serial;
    for (const uint64_t serial : serials) {
      v.Check(serial > previous && serial <= last_serial,
              "field 'serial': {} after {}, in ({}, {}]", serial, previous,
              after_serial, last_serial);
      previous = serial;
    }
    v.Check(last_serial >= after_serial, "last_serial {} < after_serial {}",
            last_serial, after_serial);
  }
  // Copies the blocks.
  rpc::Message Encode() const;
  // Borrows the blocks from `payload` and does not check their contents.
  static FramesReply Decode(std::span<const rpc::Frame> payload);
};

}  // namespace replicant::replay
