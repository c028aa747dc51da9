#include "tools/probe/sngan_step.h"

#include "engine/nn/single_replica.h"
#include "models/sngan/update.h"

namespace replicant::probe::sngan {

using graph::Graph;
using graph::Output;
using models::sngan::Latent;
using models::sngan::Updates;

namespace {

void AddUpdate(const Updates::Update& update, const std::string& name,
               StepGraph* step) {
  step->updates.insert(step->updates.end(), update.updates.begin(),
                       update.updates.end());
  step->losses.push_back({name + "_loss", update.loss});
  step->outputs.push_back({name + "_logits", update.logits});
  step->AddGradients(update.trained);
}

}  // namespace

StepGraphConfig StepGraphConfig::Read(config::Reader& reader) {
  StepGraphConfig c;
  reader.Section("model", &c.model, "the networks and their training");
  reader.Field("batch_size", &c.batch_size, {1, 65536},
               "real images per step, and as many generated ones");
  reader.Field("kind", &c.kind,
               {{"both", GraphKind::kBoth},
                {"discriminator", GraphKind::kDiscriminator},
                {"generator", GraphKind::kGenerator},
                {"evaluate", GraphKind::kEvaluate}},
               "updates of the graph. both: the discriminator's, then the "
               "generator's; evaluate: none, only images and logits with the "
               "running statistics");
  reader.Field("seed", &c.seed, {0, INT64_MAX}, "seed of the initial values");
  return c;
}

StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  StepGraph step;
  step.graph = std::make_unique<Graph>(static_cast<uint64_t>(config.seed));
  Graph& graph = *step.graph;
  nn::SingleReplica replica(graph);
  const auto add_latent = [&](const char* z, const char* label) -> Latent {
    step.num_classes[label] = config.model.num_classes;
    return {
        .z = graph.Input(z, dtype,
                         Shape({config.batch_size, config.model.latent_size})),
        .label = graph.Input(label, DType::kI32, Shape({config.batch_size}))};
  };
  Updates updates(replica, config.model, dtype);
  const GraphKind kind = config.kind;
  if (kind == GraphKind::kEvaluate) {
    const Latent latent = add_latent("z", "fake_label");
    const Output image = updates.generator()(latent.z, latent.label, nullptr);
    step.outputs = {
        {"image", image},
        {"logits", updates.discriminator()(image, latent.label, nullptr)}};
  }
  if (kind == GraphKind::kBoth || kind == GraphKind::kDiscriminator) {
    const int64_t side = config.model.side();
    const models::sngan::Batch real{
        .image = graph.Input("image", DType::kU8,
                             Shape({config.batch_size, side, side, 3})),
        .label = graph.Input("label", DType::kI32, Shape({config.batch_size}))};
    step.num_classes["label"] = config.model.num_classes;
    AddUpdate(updates.UpdateDiscriminator(real, add_latent("z", "fake_label")),
              "discriminator", &step);
  }
  if (kind == GraphKind::kBoth || kind == GraphKind::kGenerator) {
    AddUpdate(
        updates.UpdateGenerator(add_latent("generator_z", "generator_label")),
        "generator", &step);
  }
  return step;
}

}  // namespace replicant::probe::sngan
