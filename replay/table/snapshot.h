#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replay/store/frame_store.h"
#include "replay/table/n_step.h"
#include "replay/table/table.h"

namespace replicant::replay {

// The state of a shard at one moment, without the bytes of its chunks. A
// checkpoint consists of a snapshot and the segments. The snapshot has only the
// settings that determine the items.
//
// The snapshot shares the chunks with the shard and does not change when the
// shard does. Thread-safety: immutable once made.
struct ShardSnapshot {
  struct SavedChunk {
    std::shared_ptr<StoredChunk> chunk;
    // The chunk's data at that moment; chunk->data may move to disk later.
    std::shared_ptr<const Chunk> data;
    uint64_t next_serial = 0;  // of Chunk::next, or 0
  };
  struct SavedTable {
    NStepConfig n_step;
    std::string name;
    TableContents contents;
    uint64_t random_position = 0;
    int64_t updates = 0, late_updates = 0;
  };
  struct SavedAssembler {
    std::vector<StoredChunk*> chunks;
    int64_t next_step = 0;
    std::vector<NStepItem> waiting;
  };
  struct SavedWriter {
    uint64_t id = 0, last_sequence = 0, episode = 0;
    int64_t next_step = 0, steps = 0;
    bool is_open = false, is_connected = false;
    std::vector<SavedAssembler> assemblers;  // by table; none if gone
  };

  std::vector<SavedChunk> chunks;  // ascending serials
  uint64_t last_serial = 0;
  std::vector<SavedTable> tables;
  std::vector<SavedWriter> writers;
  // ShardStatus's counters, in the order in which they are declared
  std::vector<int64_t> counters;
};

// The rate limiters' states by the names of their tables.
using LimiterStates = std::map<std::string, RateLimiter::State>;

// Encodes the states for the journal, which keeps them between checkpoints.
std::vector<std::byte> EncodeLimiters(const LimiterStates& states);
// Throws IoError for bytes that are not encoded states.
LimiterStates DecodeLimiters(std::span<const std::byte> bytes);

// The location of a chunk in the segments.
struct ChunkLocation {
  uint64_t segment = 0;
  int64_t offset = 0;

  bool operator==(const ChunkLocation&) const = default;
};

// Encodes a snapshot, with a location in place of each chunk's block.
std::vector<std::byte> EncodeSnapshot(
    const ShardSnapshot& snapshot,
    const std::function<ChunkLocation(uint64_t serial)>& location);

// An encoded snapshot whose chunks are not read yet.
struct EncodedSnapshot {
  struct Place {
    uint64_t serial = 0, next_serial = 0;
    ChunkLocation location;
  };
  std::vector<Place> places;  // ascending serials
  // The rest of the snapshot.
  std::span<const std::byte> body;
};

// Reads the locations of the chunks. Throws IoError for bytes that are not a
// snapshot.
EncodedSnapshot DecodePlaces(std::span<const std::byte> bytes);
// Reads the rest; `chunks` are the chunks of encoded.places, in that order.
// Throws IoError if a number refers to no chunk or slot.
ShardSnapshot DecodeSnapshot(const EncodedSnapshot& encoded,
                             std::vector<std::shared_ptr<StoredChunk>> chunks);

}  // namespace replicant::replay
