// One end of a replay service as a separate process, for tests that kill it:
//
//   replay_load write ENDPOINT REPORT [PAUSE_MS]  streams episodes without end
//   replay_load read ENDPOINT REPORT [PAUSE_MS]   draws batches, checks each
//   item
//   replay_load write-frames, read-frames         the same with frames; a fifth
//   argument is the size of the reader's frame store, in bytes
//
// It pauses after every episode and batch, as the machine is for others, too: 1
// ms, or at full rate 0.
//
// SIGTERM ends it, a writer after everything was acknowledged. Its work stands
// in the file REPORT (replay_load.h), even after it was killed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/process.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"
#include "tests/replay/episodes.h"
#include "tests/replay/service/replay_load.h"

namespace replicant::replay::testing {
namespace {

constexpr int64_t kEpisodeSteps = 43;

// Steps with frames, or without.
EpisodeMaker MakerOf(bool has_frames) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = has_frames ? kLoadFrameBytes : 0;
  return maker;
}

std::vector<std::byte> FrameOf(const EpisodeMaker& maker, uint64_t episode,
                               int64_t step) {
  if (maker.shape.frame_bytes == 0) return {};
  return maker.Frame(episode, step);
}

Clock::TimePoint Soon() { return Clock::Real().Now() + std::chrono::hours(1); }

void AppendEpisode(StepWriter& writer, const EpisodeMaker& maker,
                   uint64_t episode) {
  writer.BeginEpisode();
  for (int64_t t = 0; t < kEpisodeSteps; ++t) {
    if (writer.Append({.observation = maker.Observation(episode, t),
                       .frame = FrameOf(maker, episode, t),
                       .action = maker.Action(episode, t),
                       .reward = EpisodeMaker::Reward(t)},
                      Soon()) != AppendResult::kOk) {
      return;
    }
  }
  static_cast<void>(writer.EndEpisode(maker.Observation(episode, kEpisodeSteps),
                                      FrameOf(maker, episode, kEpisodeSteps),
                                      Soon()));
}

void Flush(StepWriter& writer, LoadReport& report) {
  if (!writer.Flush(Soon())) throw std::runtime_error("not flushed");
  report.steps.store(writer.metrics().acknowledged_steps);
}

void Write(const std::string& endpoint, LoadReport& report,
           std::chrono::milliseconds pause, const EpisodeMaker& maker) {
  const StopSignal stop;
  StepWriter writer({.endpoint = endpoint,
                     .shape = maker.shape,
                     .group_steps = 4,
                     .queue_groups = 16});
  uint64_t episode = 0;
  for (; stop.count() == 0; ++report.rounds) {
    AppendEpisode(writer, maker, ++episode);
    report.steps.store(writer.metrics().acknowledged_steps);
    std::this_thread::sleep_for(pause);
  }
  // the second tells the service of every step of the first
  for (int i = 0; i < 2; ++i) {
    Flush(writer, report);
    AppendEpisode(writer, maker, ++episode);
  }
  Flush(writer, report);
}

// A row of EpisodeMaker.
struct Mark {
  uint64_t episode, step;
};
Mark MarkOf(const HostBuffer& rows, size_t i) {
  Mark mark;
  std::memcpy(&mark, rows.bytes().subspan(i * sizeof(mark)).data(),
              sizeof(mark));
  return mark;
}

void CheckBatch(const Batch& batch) {
  for (size_t i = 0; i < static_cast<size_t>(batch.size); ++i) {
    const Mark now = MarkOf(batch.observations, i);
    const Mark next = MarkOf(batch.next_observations, i);
    uint64_t action = 0;
    std::memcpy(&action, batch.actions.bytes().subspan(i * 8).data(), 8);
    const bool is_whole = now.episode > 0 && next.episode == now.episode &&
                          next.step > now.step && next.step <= now.step + 3 &&
                          action == now.episode * 1000 + now.step;
    if (!is_whole) throw std::runtime_error("a torn item");
  }
}

// Every frame is the one of its episode and step.
void CheckFrames(const Batch& batch, const EpisodeMaker& maker) {
  const auto frames_bytes = static_cast<size_t>(kLoadStack * kLoadFrameBytes);
  const auto has = [&](const HostBuffer& frames, const HostBuffer& rows,
                       size_t i) {
    const Mark mark = MarkOf(rows, i);
    return std::ranges::equal(
        frames.bytes().subspan(i * frames_bytes, frames_bytes),
        maker.Stack(mark.episode, static_cast<int64_t>(mark.step), kLoadStack));
  };
  for (size_t i = 0; i < static_cast<size_t>(batch.size); ++i) {
    if (!has(batch.frames, batch.observations, i) ||
        !has(batch.next_frames, batch.next_observations, i)) {
      throw std::runtime_error("a frame of another step");
    }
  }
}

void Read(const std::string& endpoint, LoadReport& report,
          std::chrono::milliseconds pause, const EpisodeMaker& maker,
          int64_t store_bytes) {
  const StopSignal stop;
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 64,
                      .prefetch = 2,
                      .kept_frames = {.max_bytes = store_bytes}});
  Batch batch;
  while (stop.count() == 0) {
    const auto deadline = Clock::Real().Now() + std::chrono::milliseconds(50);
    if (reader.Next(deadline, &batch) != ReadResult::kOk) continue;
    CheckBatch(batch);
    if (maker.shape.frame_bytes > 0) CheckFrames(batch, maker);
    reader.UpdatePriorities(
        batch, std::vector<float>(static_cast<size_t>(batch.size), 0.5f));
    const BatchReaderMetrics metrics = reader.metrics();
    report.kept_bytes = metrics.kept_frames_bytes;
    report.evicted_frames = metrics.evicted_frames;
    report.drawn_frames = metrics.drawn_frames;
    report.drawn_kept_frames = metrics.drawn_kept_frames;
    ++report.rounds;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace
}  // namespace replicant::replay::testing

int main(int argc, char** argv) {
  using namespace replicant::replay::testing;  // NOLINT
  try {
    if (argc < 4 || argc > 6) {
      throw std::runtime_error(
          "want write|read|write-frames|read-frames ENDPOINT REPORT [PAUSE_MS "
          "[STORE_BYTES]]");
    }
    const std::string role = argv[1];
    const LoadReportFile report(argv[3]);
    const std::chrono::milliseconds pause(argc > 4 ? std::atoi(argv[4]) : 1);
    const EpisodeMaker maker = MakerOf(role.ends_with("-frames"));
    if (role.starts_with("write")) {
      Write(argv[2], *report, pause, maker);
    } else {
      Read(argv[2], *report, pause, maker,
           argc > 5 ? std::atoll(argv[5]) : int64_t{0});
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "replay_load: %s\n", e.what());
    return 1;
  }
}
