#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/tensor/host_buffer.h"

// What kernels of several plans make of one variable together.
//
// Replicas of a process that train one copy of the variables want their weights
// in the layouts of their primitives: each the same bytes, in every step. They
// pack them once, into memory that they share, each taking pieces as long as
// there are any, so that who comes late finds the work done.
namespace replicant::kernels {

// A variable in one layout.
//
// Thread-safety: MakePieces() from one thread of each plan; the bytes may be
// read behind it, until any plan comes with the next round.
class SharedPack {
 public:
  explicit SharedPack(size_t size_bytes) : memory_(size_bytes) {}

  std::byte* data() { return memory_.data(); }
  size_t size_bytes() const { return memory_.size_bytes(); }

  // Calls make(piece) for those of the pieces 0 .. num_pieces - 1 of this round
  // that no other plan has taken, and returns when all are made. `round`: how
  // often this plan has called before. All plans give the same `num_pieces`,
  // and none comes with its next round before all are done with the bytes of
  // this one. Throws DeviceError if make() of another plan threw.
  template <typename Make>
  void MakePieces(int64_t round, int64_t num_pieces, const Make& make) {
    const int64_t end = (round + 1) * num_pieces;
    int64_t taken = num_taken_.load(std::memory_order_relaxed);
    while (taken < end) {
      if (!num_taken_.compare_exchange_weak(taken, taken + 1,
                                            std::memory_order_relaxed)) {
        continue;
      }
      try {
        make(taken - round * num_pieces);
      } catch (...) {
        is_broken_.store(true);
        throw;
      }
      num_made_.fetch_add(1, std::memory_order_acq_rel);
      taken = num_taken_.load(std::memory_order_relaxed);
    }
    // a piece takes less time than a thread to fall asleep and wake up
    while (num_made_.load(std::memory_order_acquire) < end) {
      if (is_broken_.load()) {
        throw DeviceError("another replica could not pack what they share");
      }
      std::this_thread::yield();
    }
  }

 private:
  HostBuffer memory_;
  // pieces of all rounds
  std::atomic<int64_t> num_taken_ = 0;
  std::atomic<int64_t> num_made_ = 0;
  std::atomic<bool> is_broken_ = false;
};

// The packs of plans that are alike, one plan for each replica, while these are
// compiled.
//
// Thread-safety: any thread.
class SharedPacks {
 public:
  // The pack of this name, which says what is packed and how.
  std::shared_ptr<SharedPack> Get(const std::string& name, size_t size_bytes)
      EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<SharedPack>> packs_ GUARDED_BY(mutex_);
};

}  // namespace replicant::kernels
