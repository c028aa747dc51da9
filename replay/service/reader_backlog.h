#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/rpc/frame.h"

namespace replicant::replay {

// Counts, per reader, the bytes of drawn batches that have not left this
// process yet. A reader that requests batches and does not read them could
// otherwise fill the memory.
//
// Thread-safety: for one thread; a Share may end in any thread.
class ReaderBacklog {
 public:
  // Counts the bytes of one batch while it lives.
  class Share {
   public:
    Share(std::shared_ptr<std::atomic<int64_t>> total, int64_t bytes);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    const std::shared_ptr<std::atomic<int64_t>> total_;
    const int64_t bytes_;
  };

  explicit ReaderBacklog(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Whether one more batch may be drawn for reader `peer`. A reader without a
  // backlog may have a batch of any size.
  bool HasRoom(uint64_t peer) const;
  std::shared_ptr<const Share> Add(uint64_t peer, int64_t bytes);
  // Forgets readers without a backlog. O(readers).
  void ForgetIdle();

 private:
  const int64_t max_bytes_;
  std::unordered_map<uint64_t, std::shared_ptr<std::atomic<int64_t>>> totals_;
};

// Keeps `share` until the longest part of `message` is passed to the network,
// or dropped.
void KeepUntilSent(std::shared_ptr<const ReaderBacklog::Share> share,
                   rpc::Message* message);

}  // namespace replicant::replay
