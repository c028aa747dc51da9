#include "replay/service/reader_backlog.h"

#include <algorithm>
#include <utility>

namespace replicant::replay {

ReaderBacklog::Share::Share(std::shared_ptr<std::atomic<int64_t>> total,
                            int64_t bytes)
    : total_(std::move(total)), bytes_(bytes) {
  *total_ += bytes_;
}

ReaderBacklog::Share::~Share() { *total_ -= bytes_; }

bool ReaderBacklog::HasRoom(uint64_t peer) const {
  const auto found = totals_.find(peer);
  return found == totals_.end() || *found->second < max_bytes_;
}

std::shared_ptr<const ReaderBacklog::Share> ReaderBacklog::Add(uint64_t peer,
                                                               int64_t bytes) {
  auto& total = totals_[peer];
  if (total == nullptr) total = std::make_shared<std::atomic<int64_t>>(0);
  return std::make_shared<const Share>(total, bytes);
}

void ReaderBacklog::ForgetIdle() {
  std::erase_if(totals_, [](const auto& entry) { return *entry.second == 0; });
}

void KeepUntilSent(std::shared_ptr<const ReaderBacklog::Share> share,
                   rpc::Message* message) {
  if (share == nullptr || message->empty()) return;
  rpc::Frame& longest = *std::ranges::max_element(
      *message, {}, [](const rpc::Frame& frame) { return frame.size(); });
  const auto kept = std::make_shared<rpc::Frame>(std::move(longest));
  longest =
      rpc::Frame::Borrow(kept->bytes(), [kept, share = std::move(share)] {});
}

}  // namespace replicant::replay
