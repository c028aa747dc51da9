#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "replay/format/batch_target.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

// The blocks of memory that readers share, mapped when a batch is first wanted
// in them.
//
// Thread-safety: one thread at a time.
class ReaderMemories {
 public:
  // The target that the reader `peer` offers; nothing if its memory cannot be
  // mapped, or if it has the limit of blocks.
  std::optional<BatchTarget> TargetAt(uint64_t peer, const BatchPlace& place);
  void ForgetPeer(uint64_t peer);
  // Forgets the blocks that their readers have withdrawn.
  void ForgetWithdrawn();

  // Memory that is mapped now.
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
