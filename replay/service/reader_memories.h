#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "replay/format/batch_target.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

// The blocks of memory that readers share; each is mapped when a batch first
// needs it.
//
// Thread-safety: one thread at a time.
class ReaderMemories {
 public:
  // The target that reader `peer` offers; std::nullopt if its memory cannot be
  // mapped, or if the reader has the maximum number of blocks.
  std::optional<BatchTarget> TargetAt(uint64_t peer, const BatchPlace& place);
  void ForgetPeer(uint64_t peer);
  // Forgets the blocks that readers have withdrawn.
  void ForgetWithdrawn();

  // Mapped memory.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Block {
    uint64_t peer = 0;
    std::shared_ptr<rpc::SharedMemory> memory;
  };

  void Forget(const std::function<bool(const Block&)>& is_gone);

  std::vector<Block> blocks_;
  int64_t size_bytes_ = 0;
};

}  // namespace replicant::replay
