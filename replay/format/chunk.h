#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "replay/format/chunk_format.h"

namespace replicant::replay {

// A chunk in the replay: its bytes, in memory or on disk, and its writer.
// It never changes once it is in a store.
//
// Ownership: shared by the store and all readers outside the shard's
// lock.
struct Chunk {
  // Throws IoError like ChunkView.
  Chunk(std::vector<std::byte> bytes, const StepShape& shape)
      : Chunk(std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
              shape) {}
  // For bytes in a mapped file, which `owner` keeps mapped.
  Chunk(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
        const StepShape& shape)
      : block(bytes),
        view(block, shape),
        is_on_disk(true),
        owner_(std::move(owner)) {}

  // Starts to read the bytes if they are on disk, without waiting.
  void WillRead() const;

  const std::span<const std::byte> block;
  const ChunkView view;
  const bool is_on_disk = false;
  // Numbers the chunks of a store, from 1, in the order of Add(); the same in
  // every checkpoint.
  uint64_t serial = 0;
  uint64_t writer = 0;
  uint64_t sequence = 0;

 private:
  Chunk(std::shared_ptr<const std::vector<std::byte>> bytes,
        const StepShape& shape)
      : block(*bytes), view(block, shape), owner_(std::move(bytes)) {}

  const std::shared_ptr<const void> owner_;
};

}  // namespace replicant::replay
