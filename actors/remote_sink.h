#pragma once

#include <chrono>
#include <utility>

#include "actors/step_sink.h"
#include "replay/client/step_writer.h"

namespace replicant::actors {

// A replay service as the place where steps go.
class RemoteSink : public StepSink {
 public:
  // Throws as replay::StepWriter's constructor does. A call waits for at most
  // `timeout`.
  RemoteSink(replay::StepWriterOptions options, Clock::Duration timeout)
      : writer_(std::move(options)), timeout_(timeout) {}

  void BeginEpisode() override { writer_.BeginEpisode(); }
  void Append(const ActorStep& step) override {
    // an episode that was given up is counted by the writer
    static_cast<void>(writer_.Append({.observation = step.observation,
                                      .frame = step.frame,
                                      .action = step.action,
                                      .reward = step.reward,
                                      .discount = step.discount},
                                     Clock::Real().Now() + timeout_));
  }
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override {
    static_cast<void>(
        writer_.EndEpisode(observation, frame, Clock::Real().Now() + timeout_));
  }

  replay::StepWriter& writer() { return writer_; }

 private:
  replay::StepWriter writer_;
  Clock::Duration timeout_;
};

}  // namespace replicant::actors
