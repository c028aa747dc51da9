#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/agent.h"
#include "learner/workloads/agent/agent_step.h"
#include "learner/workloads/agent/resident_frames.h"
#include "learner/workloads/agent/transition_pipeline.h"
#include "replay/client/kept_frames.h"
#include "replay/format/batch_codec.h"
#include "replay/table/shard.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/training.h"
#include "tests/learner/workloads/variables_of.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

// D4PG from pixels whose frames are a table in the step, against the same
// batches with their pixels.
namespace replicant::learner {

inline constexpr int64_t kStoredBatch = 8;
inline constexpr int64_t kStoredStack = 3;
// Bytes of an image of one frame, 10x10x3.
inline constexpr int64_t kStoredImage = 300;

struct StoredCase {
  int64_t window = 0;
  int64_t targets = 0;  // of the window; 0: all
  int num_images = 1;
  int num_services = 1;
  // Frames that the reader keeps of each service, and slots of frames that stay
  // in the step's table.
  int64_t kept_frames = 10'000;
  int64_t resident_frames = 10'000;
  bool decompresses = true;

  int64_t frame_bytes() const { return num_images * kStoredImage; }
  replay::NStepConfig items() const {
    return {
        .n_step = 3, .discount = 0.9, .stack = kStoredStack, .window = window};
  }
  agents::LearningSpec spec() const {
    const Shape image({10, 10, 3 * kStoredStack});
    agents::LearningSpec spec{
        .task = {.has_pixels = true,
                 .observation = image,
                 .state_size = 4,
                 .frame_stack = kStoredStack,
                 .action_minimum = {-1.0, -1.0},
                 .action_maximum = {1.0, 1.0}},
        .discount = 0.9,
        .n_step = 3,
        .window = window,
        .window_observations = targets > 0 ? targets : window};
    if (num_images > 1) {
      for (int i = 0; i < num_images; ++i) {
        spec.task.images.push_back({"pixels/" + std::to_string(i), image});
      }
      spec.task.observation = Shape({num_images * image.num_elements()});
    }
    return spec;
  }
  agents::d4pg::D4pgConfig agent() const {
    agents::d4pg::D4pgConfig config;
    config.networks.policy_hidden_sizes = {12};
    config.networks.critic_hidden_sizes = {12};
    config.networks.encoder.kind = agents::d4pg::EncoderKind::kCustom;
    config.networks.encoder.channels = {4, 4};
    config.networks.encoder.kernels = {3, 3};
    config.networks.encoder.strides = {2, 1};
    config.networks.embedding_size = 6;
    config.distribution.num_atoms = 11;
    config.critic_optimizer.learning_rate = 1e-3;
    config.policy_optimizer.learning_rate = 1e-3;
    config.random_shift = 2;
    if (window > 0) {
      config.networks.has_shared_embedding = true;
      config.target.has_encoder = true;
      config.representation.horizon = window;
      config.representation.targets = targets;
      config.representation.hidden_sizes = {12};
      config.representation.state_action_size = 12;
    }
    return config;
  }
};

// Batches of services in this process, half of whose draws see frames that the
// reader does not keep yet; every third draw comes after another episode. The
// same case gives the same batches.
class StoredTransitions : public replay::BatchSource {
 public:
  explicit StoredTransitions(const StoredCase& c)
      : form_(c.items().form()), maker_(MakerOf(c)) {
    for (int i = 0; i < c.num_services; ++i) {
      services_.push_back(std::make_unique<Service>(
          OpenTable(maker_, c.items()),
          replay::KeptFrames::Options{
              .max_bytes = c.kept_frames * (c.frame_bytes() + 8),
              .decompresses = c.decompresses},
          maker_.shape));
    }
  }

  replay::ReadResult Next(Clock::TimePoint /*deadline*/,
                          replay::Batch* batch) override {
    batch->Reserve(kStoredBatch, form_, maker_.shape);
    const auto num_services = static_cast<int64_t>(services_.size());
    for (int64_t s = 0; s < num_services; ++s) {
      const int64_t begin = kStoredBatch * s / num_services;
      const int64_t end = kStoredBatch * (s + 1) / num_services;
      batch->TakeCompressed(
          Draw(*services_[static_cast<size_t>(s)], s, end - begin), begin,
          static_cast<int32_t>(s), 1.0 / static_cast<double>(num_services));
    }
    batch->SetWeights(0.5);
    ++num_draws_;
    return replay::ReadResult::kOk;
  }
  bool CanReadAhead() const override { return true; }
  void UpdatePriorities(const replay::Batch& /*batch*/,
                        std::span<const float> /*priorities*/) override {}
  void SetPaused(bool /*is_paused*/) override {}
  void StartCheckpoint(uint64_t /*id*/,
                       const std::filesystem::path& /*folder*/) override {}
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kNotKept;
  }

  // Frames of the drawn items' segments so far, and those that were kept.
  int64_t num_drawn_frames = 0;
  int64_t num_kept_frames = 0;

 private:
  struct Service {
    Service(replay::ShardConfig config,
            const replay::KeptFrames::Options& options,
            const replay::StepShape& shape)
        : shard(std::move(config), &Clock::Real()), kept(options, shape) {}

    replay::Shard shard;
    replay::KeptFrames kept;
    uint64_t sequence = 0;
    uint64_t episode = 0;
  };

  static replay::testing::EpisodeMaker MakerOf(const StoredCase& c) {
    auto maker = replay::testing::MakePixels();
    maker.shape.frame_bytes = c.frame_bytes();
    return maker;
  }

  void Insert(Service& service, int64_t number) {
    const uint64_t episode =
        2 * ++service.episode + static_cast<uint64_t>(number);
    const auto num_steps = static_cast<int64_t>(3 + service.episode % 11);
    for (auto& chunk : maker_.Chunks(episode, num_steps)) {
      EXPECT_EQ(service.shard.TryInsert(/*writer=*/1, ++service.sequence,
                                        std::move(chunk)),
                replay::InsertResult::kInserted);
    }
  }
  static void Keep(Service& service) {
    constexpr uint64_t kToken = 7;
    const replay::FramesRequest wanted = service.kept.Request();
    std::optional<uint64_t> after;
    if (wanted.token == kToken) after = wanted.after_serial;
    const auto range = service.shard.Chunks(after, wanted.room_frames,
                                            /*max_chunks=*/100, 1 << 20);
    replay::FramesReply reply{.token = kToken,
                              .after_serial = range.after,
                              .last_serial = range.last};
    for (const auto& chunk : range.chunks) {
      reply.serials.push_back(chunk->serial);
      const std::span block = chunk->view.frames();
      reply.blocks.push_back({block.begin(), block.end()});
    }
    service.kept.Take(reply);
    service.kept.Forget(service.kept.range().first_serial);
  }
  replay::BatchMessage Draw(Service& service, int64_t number, int64_t count) {
    if (num_draws_ % 3 == 0) Insert(service, number);
    if (num_draws_ % 6 == 1) Keep(service);
    replay::SampledBatch drawn;
    EXPECT_EQ(service.shard.TrySample(/*table=*/0, count, "test", &drawn),
              count);
    replay::BatchMessage message(
        EncodeBatch(drawn, replay::BatchState::kFull, maker_.shape, form_,
                    std::numeric_limits<size_t>::max(), /*target=*/nullptr,
                    service.kept.range()),
        maker_.shape, /*target=*/nullptr,
        [&](uint64_t serial) { return service.kept.Find(serial); });
    num_drawn_frames += message.num_frames();
    num_kept_frames += message.num_kept_frames();
    return message;
  }

  const replay::BatchForm form_;
  const replay::testing::EpisodeMaker maker_;
  std::vector<std::unique_ptr<Service>> services_;
  int64_t num_draws_ = 0;
};

struct StoredRun {
  std::vector<std::vector<float>> priorities;  // by step
  Variables last;
  int64_t num_drawn_frames = 0;
  int64_t num_kept_frames = 0;
  int64_t num_sent_frames = 0;
};

// Trains on `num_draws` batches, whose frames are in a table or come as pixels.
inline StoredRun TrainStored(
    const StoredCase& c, int num_draws, bool is_resident,
    const replicator::ReplicationConfig& config,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  const agents::LearningSpec spec = c.spec();
  const auto agent = agents::d4pg::MakeAgent(c.agent());
  agent->Check(spec);
  StoredTransitions source(c);
  const auto replicator = replicator::MakeReplicator(config, kReplicaSeed,
                                                     /*rank=*/{}, make_backend);
  std::optional<ResidentFrames> frames;
  runtime::CompileOptions options;
  if (is_resident) {
    const int64_t per_row =
        c.window > 0 ? c.window + kStoredStack : 2 * kStoredStack;
    frames.emplace(replicator->variables().backend(),
                   ResidentFrames::Options{
                       .frame_bytes = c.frame_bytes(),
                       .max_bytes = c.resident_frames * c.frame_bytes(),
                       .frames_per_batch = kStoredBatch * per_row});
    options.residents[kFrameTable] = &*frames;
  }
  ResidentFrames* const table = frames ? &*frames : nullptr;
  const auto input = replicator->MakeInput(
      [&](const replicator::InputContext& /*context*/) {
        return std::make_unique<TransitionPipeline>(
            spec, kStoredBatch, /*num_threads=*/2, &source, table);
      },
      replicator::InputMode::kSingle);
  const auto step = replicator->Build(
      *input,
      [&](replicator::ReplicaContext& replica,
          const replicator::Inputs& inputs) {
        return BuildAgentStep(replica, inputs, *agent, spec,
                              table == nullptr ? nullptr : &table->type())
            .outputs;
      },
      options);
  RunAgentStart(*agent, spec, kReplicaSeed, replicator->variables());
  StoredRun run;
  for (int i = 0; i < num_draws; ++i) {
    EXPECT_EQ(step->Run({}), replicator::NextResult::kOk);
    const auto priority = step->value("priority").Span<float>();
    run.priorities.emplace_back(priority.begin(), priority.end());
  }
  run.last = ValuesOf(replicator->variables());
  run.num_drawn_frames = source.num_drawn_frames;
  run.num_kept_frames = source.num_kept_frames;
  run.num_sent_frames = table == nullptr ? 0 : table->num_sent();
  return run;
}

// Draws of a test: of REPLICANT_FRAME_DRAWS, which scripts/checks/frame_store
// sets.
inline int NumDraws(int usual) {
  const char* const given = std::getenv("REPLICANT_FRAME_DRAWS");
  return given == nullptr ? usual : std::atoi(given);
}

// The forms of items and stores that differ in what they read or send.
inline std::vector<std::pair<std::string, StoredCase>> StoredCases() {
  return {{"transitions", {}},
          {"windows", {.window = 4}},
          {"windows of two targets", {.window = 4, .targets = 2}},
          {"two cameras", {.num_images = 2}},
          {"windows of two cameras", {.window = 4, .num_images = 2}},
          {"three services", {.num_services = 3}},
          {"compressed frames", {.decompresses = false}},
          // stores smaller than the replay, and than a batch
          {"few kept", {.kept_frames = 150}},
          {"few slots", {.resident_frames = 90}},
          {"windows in few slots", {.window = 4, .resident_frames = 90}},
          {"fewer slots than a batch", {.resident_frames = 9}}};
}

// Checks that the table changes no bit of any update.
inline void CheckResidentIsTheSame(
    const StoredCase& c, int num_draws,
    const replicator::ReplicationConfig& config,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  const StoredRun plain =
      TrainStored(c, num_draws, /*is_resident=*/false, config, make_backend);
  const StoredRun resident =
      TrainStored(c, num_draws, /*is_resident=*/true, config, make_backend);
  for (int i = 0; i < num_draws; ++i) {
    ASSERT_EQ(plain.priorities[static_cast<size_t>(i)],
              resident.priorities[static_cast<size_t>(i)])
        << "draw " << i;
  }
  EXPECT_EQ(plain.last, resident.last);
  EXPECT_NE(plain.priorities.front(), plain.priorities.back());
  // both kinds of frames were drawn, and those kept were not sent each time
  EXPECT_EQ(resident.num_drawn_frames, plain.num_drawn_frames);
  EXPECT_GT(resident.num_kept_frames, 0);
  EXPECT_LT(resident.num_kept_frames, resident.num_drawn_frames);
  EXPECT_GT(resident.num_sent_frames, 0);
}

}  // namespace replicant::learner
