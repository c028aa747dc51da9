#include "env/frame_disturbances.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace replicant::env {
namespace {

constexpr size_t kNumNoise = 65536;
// Bytes with successive numbers of the noise.
constexpr size_t kStretch = 256;

}  // namespace

bool FrameDisturbanceConfig::IsAny() const {
  return delay > 0 || gaussian > 0.0 || dropped.probability > 0.0;
}

FrameDisturbanceConfig FrameDisturbanceConfig::Read(config::Reader& reader) {
  FrameDisturbanceConfig c;
  reader.Field("delay", &c.delay, {0, 1000},
               "steps of the agent between a state and its frame");
  reader.Field("gaussian", &c.gaussian, {0.0, 255.0},
               "standard deviation of the noise of each byte, in grey levels");
  reader.Section("dropped", &c.dropped,
                 "frames that are lost: the newest before is seen again");
  return c;
}

FrameDisturbances::FrameDisturbances(const FrameDisturbanceConfig& config,
                                     const RandomStream& random,
                                     size_t frame_size)
    : config_(config),
      stream_(random),
      random_(random),
      line_(static_cast<size_t>(config.delay) + 1,
            std::vector<uint8_t>(frame_size)) {
  if (config_.gaussian <= 0.0) return;
  RandomStream noise = random.Substream("noise");
  noise_.resize(kNumNoise + kStretch);
  for (size_t i = 0; i < kNumNoise; ++i) {
    noise_[i] = static_cast<int16_t>(std::lround(
        std::clamp(config_.gaussian * noise.Normal(), -510.0, 510.0)));
  }
  // a stretch may go over the end
  std::copy_n(noise_.begin(), kStretch, noise_.begin() + kNumNoise);
}

void FrameDisturbances::Begin(int64_t episode) {
  random_ = stream_.Substream(fmt::format("episode-{}", episode));
  is_first_ = true;
  dropped_left_ = 0;
}

void FrameDisturbances::Apply(std::span<uint8_t> frame) {
  if (!noise_.empty()) AddNoise(frame);
  const bool is_dropped = Fails(config_.dropped, random_, &dropped_left_);
  if (is_first_) {
    dropped_left_ = 0;  // there is none before it to be seen again
    for (auto& kept : line_) std::ranges::copy(frame, kept.begin());
    is_first_ = false;
    return;
  }
  if (is_dropped) std::ranges::copy(line_[newest_], frame.begin());
  newest_ = (newest_ + 1) % line_.size();
  std::ranges::copy(frame, line_[newest_].begin());
  std::ranges::copy(line_[(newest_ + 1) % line_.size()], frame.begin());
}

void FrameDisturbances::AddNoise(std::span<uint8_t> frame) {
  for (size_t begin = 0; begin < frame.size(); begin += kStretch) {
    const size_t count = std::min(kStretch, frame.size() - begin);
    uint8_t* bytes = frame.data() + begin;
    const int16_t* noise =
        noise_.data() +
        static_cast<size_t>(random_.UniformInt(int64_t{kNumNoise}));
    for (size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<uint8_t>(std::clamp(bytes[i] + noise[i], 0, 255));
    }
  }
}

}  // namespace replicant::env
