#include "replay/service/service_upkeep.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace replicant::replay {

ServiceUpkeep::ServiceUpkeep(const ReplayConfig& config,
                             const rpc::Server* server, CheckpointSaver* saver)
    : server_(server),
      saver_(saver),
      interval_(FromSeconds(config.checkpoint_interval_s)) {
  if (!config.metrics_address.empty()) {
    exposer_.emplace(metrics::ExposerOptions{config.metrics_address},
                     registry_);
    spdlog::info("metrics at {}", exposer_->Url());
  }
  if (saver != nullptr && interval_.count() > 0) {
    next_checkpoint_ = Clock::Real().Now() + interval_;
  }
}

Clock::Duration ServiceUpkeep::Run(const ShardStatus& status) {
  std::optional<CheckpointStatus> checkpoints;
  if (saver_ != nullptr) checkpoints = saver_->Status();
  metrics_.Update(status, server_->metrics(),
                  checkpoints ? &*checkpoints : nullptr);
  const Clock::Duration longest = std::chrono::milliseconds(500);
  if (!next_checkpoint_) return longest;
  const Clock::TimePoint now = Clock::Real().Now();
  if (now >= *next_checkpoint_ && saver_->Start(/*id=*/0, /*done=*/nullptr)) {
    next_checkpoint_ = now + interval_;
  }
  return std::clamp<Clock::Duration>(*next_checkpoint_ - now,
                                     std::chrono::milliseconds(1), longest);
}

}  // namespace replicant::replay
