#pragma once

#include <string>
#include <vector>

#include "core/nn/optimizers.h"
#include "core/nn/replica_hooks.h"
#include "core/nn/trained_variables.h"
#include "models/sngan/networks.h"

namespace replicant::models::sngan {

// What images are made from.
struct Latent {
  Output z;      // [B, Z]
  Output label;  // [B] i32
};

// Real images.
struct Batch {
  Output image;  // [B, H, W, 3] u8
  Output label;  // [B] i32
};
// Inputs "image" and "label" of the graph.
Batch AddBatchInputs(Graph& graph, const SnganConfig& config,
                     int64_t batch_size, CallSite site = CallSite::Here());

// Both networks in one graph, and their updates: each of the functions may be
// called once, in any order, and goes on from what the one before made.
class Updates {
 public:
  Updates(Graph& graph, const SnganConfig& config, DType dtype,
          const nn::ReplicaHooks& replicas = {},
          CallSite site = CallSite::Here());

  struct Update {
    Output loss;
    Output logits;  // of the discriminator: [B], of real and then fake [2 B]
    nn::TrainedVariables trained;
    std::vector<Output> updates;
  };
  // mean(max(0, 1 - D(real))) + mean(max(0, 1 + D(fake))), by Adam. Real and
  // fake images go through the discriminator as one batch, with one power
  // iteration. Counts updates in the variable "discriminator_step".
  Update UpdateDiscriminator(const Batch& real, const Latent& fake,
                             CallSite site = CallSite::Here());
  // -mean(D(fake)), by Adam. Counts updates in "generator_step".
  Update UpdateGenerator(const Latent& fake, CallSite site = CallSite::Here());

  // Updates of each network so far, i64[].
  Output discriminator_step() const { return discriminator_step_.value; }
  Output generator_step() const { return generator_step_.value; }
  const Generator& generator() const { return generator_; }
  const Discriminator& discriminator() const { return discriminator_; }

 private:
  // `name`: "discriminator" or "generator", which makes `num_steps` updates for
  // one of the generator.
  void AddOptimizer(const std::string& name, const nn::StepCounter& step,
                    int64_t num_steps, CallSite site, Update* update);

  Graph& graph_;
  SnganConfig config_;
  DType dtype_;
  nn::ReplicaHooks replicas_;
  Generator generator_;
  Discriminator discriminator_;
  nn::StepCounter discriminator_step_;
  nn::StepCounter generator_step_;
};

}  // namespace replicant::models::sngan
