#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/mutex.h"
#include "base/tensor/host_buffer.h"
#include "engine/kernels/backend.h"

// Weights that the kernels of several plans pack once.
//
// Replicas of a process that train one copy of the variables need the weights
// in the layouts of their primitives: the same bytes for each replica, in every
// step. The replicas divide the packing: each takes the next piece until none
// is left, so that a replica that comes late finds the weights packed.
namespace replicant::kernels::cpu {

// A variable in one layout.
//
// Thread-safety: MakePieces() from one thread of each plan. After it returns
// the bytes may be read until any plan starts the next round.
class SharedPack {
 public:
  explicit SharedPack(size_t size_bytes) : memory_(size_bytes) {}

  std::byte* data() { return memory_.data(); }
  size_t size_bytes() const { return memory_.size_bytes(); }

  // Calls make(piece) for each piece of 0 .. num_pieces - 1 that no other plan
  // has taken in this round, and returns when all pieces are made. `round` is
  // the number of earlier calls by this plan. All plans give the same
  // `num_pieces`, and no plan starts its next round before every plan has
  // finished with the bytes of this one. Throws DeviceError if make() of
  // another plan threw.
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
        throw DeviceError("another replica failed to pack shared weights");
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

// The CPU backend's ReplicaGroup: the packs of plans that are alike, one plan
// for each replica, while the plans are compiled.
//
// Thread-safety: any thread.
class SharedPacks : public ReplicaGroup {
 public:
  // The pack of this name. The name identifies the variable and the layout.
  std::shared_ptr<SharedPack> Get(const std::string& name, size_t size_bytes)
      EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<SharedPack>> packs_ GUARDED_BY(mutex_);
};

}  // namespace replicant::kernels::cpu
