#include "learner/workloads/sngan_workload.h"

#include <utility>

namespace replicant::learner {
namespace {

constexpr const char* kCyclePosition = "cycle_position";

}  // namespace

SnganWorkload::SnganWorkload(const models::sngan::SnganConfig& config,
                             int64_t batch_size, graph::Precision precision,
                             uint64_t seed,
                             std::unique_ptr<replicator::Replicator> replicator)
    : ImageWorkload(std::move(replicator),
                    {.batch_size = batch_size,
                     .side = config.side(),
                     .num_classes = config.num_classes,
                     .seed = seed},
                    precision),
      generator_begin_(ImageWorkload::replicator().accumulation_steps() *
                       config.discriminator_steps),
      cycle_length_(generator_begin_ +
                    ImageWorkload::replicator().accumulation_steps()),
      discriminator_step_(BuildUpdate(config, SnganNetwork::kDiscriminator)),
      generator_step_(BuildUpdate(config, SnganNetwork::kGenerator)) {}

std::unique_ptr<replicator::Step> SnganWorkload::BuildUpdate(
    const models::sngan::SnganConfig& config, SnganNetwork network) {
  return BuildStep([&](replicator::ReplicaContext& replica,
                       const replicator::Inputs& inputs) {
    return BuildSnganStep(replica, inputs, config, network);
  });
}

NextResult SnganWorkload::Step(Clock::TimePoint deadline) {
  const bool is_generator = cycle_position_ >= generator_begin_;
  const NextResult result = RunStep(is_generator, deadline);
  if (result == NextResult::kOk) {
    cycle_position_ = (cycle_position_ + 1) % cycle_length_;
  } else if (replicator().HasResults()) {
    // the input is paused, and steps of the other network are under way
    return RunStep(!is_generator, deadline);
  }
  return result;
}

NextResult SnganWorkload::RunStep(bool is_generator,
                                  Clock::TimePoint deadline) {
  replicator::Step& step =
      is_generator ? *generator_step_ : *discriminator_step_;
  const NextResult result = step.Run(deadline);
  if (result == NextResult::kOk) {
    num_new_steps_ = step.num_steps();
    (is_generator ? generator_loss_ : discriminator_loss_) =
        step.value("loss").Span<float>()[0];
  }
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
  // a run may resume with another number of updates in a cycle
  cycle_position_ = position % cycle_length_;
}

}  // namespace replicant::learner
