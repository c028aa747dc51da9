#include "learner/workloads/sngan/sngan_workload.h"

#include <utility>

#include "core/graph/ops/random.h"
#include "learner/workloads/sngan/update.h"

namespace replicant::learner {
namespace {

using replicator::ReduceOp;

constexpr const char* kCyclePosition = "cycle_position";

// A stream of random numbers, a row of which is one of the whole batch.
graph::RandomOptions StreamOf(const replicator::ReplicaContext& replica,
                              const char* name, graph::Output step,
                              int64_t batch_size) {
  return {.name = name,
          .step = step,
          .first_row = replica.replica_id() * batch_size};
}

}  // namespace

SnganWorkload::SnganWorkload(const sngan::SnganConfig& config,
                             int64_t batch_size, graph::Precision precision,
                             uint64_t seed,
                             std::unique_ptr<replicator::Replicator> replicator)
    : ImageWorkload(std::move(replicator),
                    {.batch_size = batch_size,
                     .side = config.side(),
                     .num_classes = config.num_classes,
                     .seed = seed},
                    precision),
      cycle_length_(config.discriminator_steps + 1),
      discriminator_step_(BuildUpdate(config, /*is_generator=*/false)),
      generator_step_(BuildUpdate(config, /*is_generator=*/true)) {}

std::unique_ptr<replicator::Step> SnganWorkload::BuildUpdate(
    const sngan::SnganConfig& config, bool is_generator) {
  return BuildStep([&](replicator::ReplicaContext& replica,
                       const replicator::Inputs& inputs) {
    const sngan::Batch real{.image = inputs.at("image"),
                            .label = inputs.at("label")};
    const int64_t batch_size = real.label.shape()[0];
    const auto mean = [&](const std::vector<graph::Output>& gradients) {
      return replica.AllReduce(gradients, ReduceOp::kMean);
    };
    sngan::Updates updates(replica.graph(), config, DType::kF32);
    const Shape latent({batch_size, config.latent_size});
    sngan::Updates::Update update;
    if (is_generator) {
      const graph::Output step = updates.generator_step();
      update = updates.UpdateGenerator(
          {.z = graph::RandomNormal(
               StreamOf(replica, "generator_z", step, batch_size), DType::kF32,
               latent),
           .label = real.label},
          mean);
    } else {
      const graph::Output step = updates.discriminator_step();
      update = updates.UpdateDiscriminator(
          real,
          {.z = graph::RandomNormal(
               StreamOf(replica, "discriminator_z", step, batch_size),
               DType::kF32, latent),
           .label = graph::RandomInt(
               StreamOf(replica, "discriminator_label", step, batch_size),
               Shape({batch_size}), 0, config.num_classes)},
          mean);
    }
    return replicator::StepOutputs{
        .values = {{"loss", replica.AllReduce(update.loss, ReduceOp::kMean)}},
        .updates = update.updates};
  });
}

NextResult SnganWorkload::Step(Clock::TimePoint deadline) {
  const bool is_generator = cycle_position_ + 1 == cycle_length_;
  replicator::Step& step =
      is_generator ? *generator_step_ : *discriminator_step_;
  const NextResult result = step.Run(deadline);
  if (result != NextResult::kOk) return result;
  (is_generator ? generator_loss_ : discriminator_loss_) =
      step.value("loss").Span<float>()[0];
  cycle_position_ = (cycle_position_ + 1) % cycle_length_;
  return result;
}

std::vector<std::pair<std::string, double>> SnganWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  if (discriminator_loss_) {
    scalars.emplace_back("discriminator_loss", *discriminator_loss_);
  }
  if (generator_loss_) scalars.emplace_back("generator_loss", *generator_loss_);
  return scalars;
}

std::map<std::string, std::string> SnganWorkload::State() const {
  auto state = ImageWorkload::State();
  state[kCyclePosition] = std::to_string(cycle_position_);
  return state;
}

void SnganWorkload::Restore(const std::map<std::string, std::string>& state) {
  const int64_t position = CountIn(state, kCyclePosition);
  ImageWorkload::Restore(state);
  // a run may go on with another number of updates in a cycle
  cycle_position_ = position % cycle_length_;
}

}  // namespace replicant::learner
