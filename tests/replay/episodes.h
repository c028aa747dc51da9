#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "replay/format/chunk_format.h"
#include "replay/format/frame_codec.h"

namespace replicant::replay::testing {

// Steps whose every byte follows from episode and step, so that a test knows
// what a sampled item must hold.
struct EpisodeMaker {
  StepShape shape = {.observation_bytes = 16, .action_bytes = 8};
  int64_t group_steps = 4;
  FrameCodec codec = FrameCodec::kLz4;
  bool has_noise = false;  // its frames hardly compress

  // The observation: episode and step as two u64.
  std::vector<std::byte> Observation(uint64_t episode, int64_t step) const {
    const uint64_t row[] = {episode, static_cast<uint64_t>(step)};
    return Bytes(row, sizeof(row));
  }
  std::vector<std::byte> Action(uint64_t episode, int64_t step) const {
    const uint64_t row[] = {episode * 1000 + static_cast<uint64_t>(step)};
    return Bytes(row, sizeof(row));
  }
  // A slope that moves with the step, or noise.
  std::vector<std::byte> Frame(uint64_t episode, int64_t step) const {
    std::vector<std::byte> frame(static_cast<size_t>(shape.frame_bytes));
    if (has_noise) {
      RandomStream random(episode, std::to_string(step));
      for (std::byte& x : frame) {
        x = static_cast<std::byte>(random.UniformInt(256));
      }
      return frame;
    }
    for (size_t i = 0; i < frame.size(); ++i) {
      frame[i] = static_cast<std::byte>(i / 8 + episode * 7 +
                                        static_cast<uint64_t>(step) * 13);
    }
    return frame;
  }
  // frames max(0, step - stack + 1 + j) one after the other.
  std::vector<std::byte> Stack(uint64_t episode, int64_t step,
                               int64_t stack) const {
    std::vector<std::byte> all;
    for (int64_t j = 0; j < stack; ++j) {
      const auto frame =
          Frame(episode, std::max<int64_t>(0, step - stack + 1 + j));
      all.insert(all.end(), frame.begin(), frame.end());
    }
    return all;
  }
  static float Reward(int64_t step) { return static_cast<float>(step % 3); }

  // The chunks of the first `num_steps` of an episode, which ends there
  // unless `is_open`; d is 1 throughout.
  std::vector<std::vector<std::byte>> Chunks(uint64_t episode,
                                             int64_t num_steps,
                                             bool is_open = false) const {
    std::vector<std::vector<std::byte>> chunks;
    for (int64_t first = 0; first < num_steps; first += group_steps) {
      ChunkBuilder builder(shape, episode, first);
      const int64_t end = std::min(num_steps, first + group_steps);
      const bool ends = end == num_steps && !is_open;
      for (int64_t t = first; t < end; ++t) {
        builder.AddStep(Observation(episode, t), Action(episode, t), Reward(t),
                        1.0f);
      }
      if (ends) builder.AddLastObservation(Observation(episode, end));
      chunks.push_back(
          builder.Finish(Frames(episode, first, end - first + (ends ? 1 : 0))));
    }
    return chunks;
  }

 private:
  static std::vector<std::byte> Bytes(const void* data, size_t size) {
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), data, size);
    return bytes;
  }
  std::vector<std::byte> Frames(uint64_t episode, int64_t first,
                                int64_t count) const {
    if (shape.frame_bytes == 0) return {};
    FrameBlockEncoder encoder(codec, shape.frame_bytes, count);
    for (int64_t i = 0; i < count; ++i) encoder.Add(Frame(episode, first + i));
    return encoder.Finish();
  }
};

// Frames of `frame_bytes` bytes, one after the other.
inline std::vector<std::byte> Joined(std::span<const std::byte* const> frames,
                                     size_t frame_bytes) {
  std::vector<std::byte> all;
  for (const std::byte* frame : frames) {
    all.insert(all.end(), frame, frame + frame_bytes);
  }
  return all;
}

// Episodes with frames of 300 bytes.
inline EpisodeMaker MakePixels(FrameCodec codec = FrameCodec::kLz4) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = 300;
  maker.codec = codec;
  return maker;
}

}  // namespace replicant::replay::testing
