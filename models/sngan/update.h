#pragma once

#include <string>
#include <vector>

#include "engine/nn/optimizers.h"
#include "engine/nn/replica_context.h"
#include "engine/nn/trained_variables.h"
#include "models/sngan/networks.h"

namespace replicant::models::sngan {

// Inputs of the generator.
struct Latent {
  Output z;      // [B, Z]
  Output label;  // [B] i32
};

// A batch of real images.
struct Batch {
  Output image;  // [B, H, W, 3] u8
  Output label;  // [B] i32
};

// Both networks in one graph, and their updates. Each update function may be
// called once, in any order. The second one uses the variables that the first
// one updated.
class Updates {
 public:
  // `replica` outlives this.
  Updates(nn::ReplicaContext& replica, const SnganConfig& config, DType dtype,
          CallSite site = CallSite::Here());

  struct Update {
    Output loss;
    // of the discriminator: [2 B], real before fake images, in its own update;
    // [B] in the generator's
    Output logits;
    nn::TrainedVariables trained;
    std::vector<Output> updates;
  };
  // Minimises mean(max(0, 1 - D(real))) + mean(max(0, 1 + D(fake))) by Adam.
  // Real and fake images go through the discriminator as one batch, with one
  // power iteration. The variable "discriminator_step" counts updates.
  Update UpdateDiscriminator(const Batch& real, const Latent& fake,
                             CallSite site = CallSite::Here());
  // Minimises -mean(D(fake)) by Adam, then advances the average of the
  // generator's variables (average_decay). The variable "generator_step" counts
  // updates.
  Update UpdateGenerator(const Latent& fake, CallSite site = CallSite::Here());

  // Number of updates of each network so far, i64[].
  Output discriminator_step() const { return discriminator_step_.value; }
  Output generator_step() const { return generator_step_.value; }
  const Generator& generator() const { return generator_; }
  const Discriminator& discriminator() const { return discriminator_; }

 private:
  // Adds gradients and optimizer of the network `name`, "discriminator" or
  // "generator", with its initial learning rate. It does `num_steps` updates
  // per update of the generator.
  void AddOptimizer(const std::string& name, double learning_rate,
                    const nn::StepCounter& step, int64_t num_steps,
                    Update* update);

  nn::ReplicaContext& replica_;
  Graph& graph_;
  SnganConfig config_;
  DType dtype_;
  Generator generator_;
  std::vector<VariableId> generator_variables_;
  Discriminator discriminator_;
  nn::StepCounter discriminator_step_;
  nn::StepCounter generator_step_;
};

}  // namespace replicant::models::sngan
