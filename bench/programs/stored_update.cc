#include "bench/programs/stored_update.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "learner/workloads/agent/reader_options.h"
#include "replay/client/step_writer.h"
#include "replicator/make_replicator.h"

namespace replicant::learner {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kEpisodeSteps = 100;
// The contents of frames matter to nobody here.
constexpr int64_t kContents = 64;
constexpr int kMaxWarmUpUpdates = 1000;

// Pixels are three channels of each frame of a stack.
agents::LearningSpec SpecOf(const probe::d4pg::StepGraphConfig& config) {
  agents::LearningSpec spec = config.Spec(DType::kF32);
  spec.task.frame_stack = spec.task.observation[2] / 3;
  spec.n_step = 5;
  return spec;
}

replay::ShardConfig ShardOf(const agents::LearningSpec& spec,
                            int64_t num_frames) {
  replay::ShardConfig config;
  config.shape = {.observation_bytes = spec.task.observation_bytes(),
                  .action_bytes = spec.task.action_bytes(),
                  .frame_bytes = spec.task.frame_bytes()};
  config.tables = {{.name = "default",
                    .max_size = 2 * num_frames,
                    .n_step = {.n_step = spec.n_step,
                               .discount = spec.discount,
                               .stack = spec.task.frame_stack,
                               .window = spec.window},
                    .rate_limiter = {.mode = replay::RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

Clock::TimePoint Patience() {
  return Clock::Real().Now() + std::chrono::minutes(1);
}

}  // namespace

StoredUpdate::StoredUpdate(const probe::d4pg::StepGraphConfig& config,
                           const Options& options,
                           const kernels::BackendFactory& make_backend)
    : spec_(SpecOf(config)),
      batch_size_(config.batch_size),
      service_(ShardOf(spec_, options.num_frames)) {
  LearnerConfig learner{.batch_size = batch_size_};
  // room for what blocks take beside their frames
  learner.frame_store.max_bytes =
      2 * options.num_frames * spec_.task.frame_bytes();
  learner.precision = options.precision;
  learner.replication = options.replication;
  // a missing device is met first
  auto replicator = replicator::MakeReplicator(learner.replication, kSeed,
                                               /*rank=*/{}, make_backend);
  Fill(options.num_frames);
  replay::BatchReaderOptions reader = ReaderOptionsOf(learner);
  reader.endpoints = {service_.endpoint()};
  reader.shape = service_.shape();
  reader.window = spec_.window;
  reader_ = std::make_unique<replay::BatchReader>(reader);
  workload_ = std::make_unique<AgentWorkload>(
      agents::d4pg::MakeAgent(config.agent),
      WorkloadArguments{.learner = learner,
                        .seed = kSeed,
                        .replicator = std::move(replicator),
                        .spec = spec_,
                        .source = reader_.get()});
  WarmUp(options.num_frames);
}

void StoredUpdate::Fill(int64_t num_frames) const {
  const auto frame_bytes = static_cast<size_t>(service_.shape().frame_bytes);
  std::vector<std::byte> contents(frame_bytes * kContents);
  RandomStream random(kSeed, "frames");
  for (std::byte& x : contents) {
    x = static_cast<std::byte>(random.UniformInt(256));
  }
  const std::vector<std::byte> row(
      static_cast<size_t>(service_.shape().observation_bytes));
  const std::vector<std::byte> action(
      static_cast<size_t>(service_.shape().action_bytes));
  replay::StepWriterOptions options;
  options.endpoint = service_.endpoint();
  options.shape = service_.shape();
  options.codec = replay::FrameCodec::kNone;
  replay::StepWriter writer(options);
  int64_t number = 0;
  const auto next_frame = [&] {
    return std::span(contents).subspan(
        static_cast<size_t>(number++ % kContents) * frame_bytes, frame_bytes);
  };
  while (number < num_frames) {
    writer.BeginEpisode();
    for (int64_t t = 0; t < kEpisodeSteps; ++t) {
      if (writer.Append({.observation = row,
                         .frame = next_frame(),
                         .action = action,
                         .reward = 1.0F},
                        Patience()) != replay::AppendResult::kOk) {
        throw CommError("StoredUpdate: an episode was dropped");
      }
    }
    if (writer.EndEpisode(row, next_frame(), Patience()) !=
        replay::AppendResult::kOk) {
      throw CommError("StoredUpdate: an episode was dropped");
    }
  }
  if (!writer.Flush(Patience())) throw CommError("StoredUpdate: no answer");
}

void StoredUpdate::WarmUp(int64_t num_frames) {
  const int64_t all_bytes = num_frames * spec_.task.frame_bytes();
  // the last few frames may be drawn much later
  const int64_t few = batch_size_ / 100;
  int64_t num_new = 0;
  for (int i = 0; i < kMaxWarmUpUpdates; ++i) {
    const int64_t before = num_sent();
    Run();
    num_new = num_sent() - before;
    if (num_new <= few && reader_->metrics().kept_frames_bytes >= all_bytes) {
      return;
    }
  }
  throw CommError(fmt::format(
      "StoredUpdate: update {} still takes {} frames to the device; the reader "
      "keeps {} of {} bytes",
      kMaxWarmUpUpdates, num_new, reader_->metrics().kept_frames_bytes,
      all_bytes));
}

void StoredUpdate::Run() {
  if (workload_->Step(Patience()) != NextResult::kOk) {
    throw CommError("StoredUpdate: no batch");
  }
}

int64_t StoredUpdate::num_sent() const {
  for (const auto& [name, value] : workload_->Scalars()) {
    if (name == "frame_store_sent_frames") return static_cast<int64_t>(value);
  }
  return 0;
}

}  // namespace replicant::learner
