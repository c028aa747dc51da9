// Stores an episode in a replay service, draws a batch and sets its priorities.
//
//   first_batch [ENDPOINT]
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"

namespace replay = replicant::replay;

int main(int argc, char** argv) {
  const std::string endpoint = argc > 1 ? argv[1] : "tcp://127.0.0.1:7001";
  const replay::StepShape shape = {.observation_bytes = 16, .action_bytes = 8};
  const auto deadline =
      replicant::Clock::Real().Now() + std::chrono::minutes(1);

  // one episode of 8 steps: observations of two doubles, actions of one
  replay::StepWriter writer({.endpoint = endpoint, .shape = shape});
  std::array<double, 2> o = {0.0, 1.0};
  const std::array<double, 1> a = {0.5};
  writer.BeginEpisode();
  for (int t = 0; t < 8; ++t) {
    o[0] = t;
    const auto result =
        writer.Append({.observation = std::as_bytes(std::span(o)),
                       .action = std::as_bytes(std::span(a)),
                       .reward = 1.0F,
                       .discount = 1.0F},
                      deadline);
    // no room until the deadline, or the service was restarted
    if (result != replay::AppendResult::kOk) return 1;
  }
  o[0] = 8.0;
  const auto end =
      writer.EndEpisode(std::as_bytes(std::span(o)), /*frame=*/{}, deadline);
  // the service has acknowledged all of it
  if (end != replay::AppendResult::kOk || !writer.Flush(deadline)) return 1;

  replay::BatchReader reader(
      {.endpoints = {endpoint}, .shape = shape, .batch_size = 4});
  replay::Batch batch;
  if (reader.Next(deadline, &batch) != replay::ReadResult::kOk) return 1;
  for (size_t i = 0; i < batch.rewards.size(); ++i) {
    std::memcpy(o.data(), batch.observations.data() + i * sizeof(o), sizeof(o));
    std::printf("observation %g %g, reward %g, discount %g\n", o[0], o[1],
                static_cast<double>(batch.rewards[i]),
                static_cast<double>(batch.discounts[i]));
  }
  reader.UpdatePriorities(batch,
                          std::vector<float>(batch.rewards.size(), 1.0F));
}
