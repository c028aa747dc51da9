#include "replay/service/reader_memories.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace replicant::replay {
namespace {

// One block per prefetched batch, and some that the reader is about to
// withdraw.
constexpr int kMaxBlocksPerPeer = 64;

}  // namespace

std::optional<BatchTarget> ReaderMemories::TargetAt(uint64_t peer,
                                                    const BatchPlace& place) {
  int num_of_peer = 0;
  for (const Block& known : blocks_) {
    if (known.peer != peer) continue;
    if (known.memory->handle() == place.memory) return {{place, known.memory}};
    ++num_of_peer;
  }
  if (num_of_peer >= kMaxBlocksPerPeer) return std::nullopt;
  std::string why;
  auto memory = rpc::SharedMemory::Open(place.memory, &why);
  if (memory == nullptr) {
    spdlog::debug("replay: the memory of a reader cannot be shared: {}", why);
    return std::nullopt;
  }
  blocks_.push_back({peer, memory});
  size_bytes_ += static_cast<int64_t>(memory->bytes().size());
  return {{place, std::move(memory)}};
}

void ReaderMemories::ForgetPeer(uint64_t peer) {
  Forget([peer](const Block& block) { return block.peer == peer; });
}

void ReaderMemories::ForgetWithdrawn() {
  Forget([](const Block& block) { return block.memory->IsWithdrawn(); });
}

void ReaderMemories::Forget(const std::function<bool(const Block&)>& is_gone) {
  std::erase_if(blocks_, [&](const Block& block) {
    if (!is_gone(block)) return false;
    size_bytes_ -= static_cast<int64_t>(block.memory->bytes().size());
    return true;
  });
}

}  // namespace replicant::replay
