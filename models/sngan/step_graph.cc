#include "models/sngan/step_graph.h"

#include "models/sngan/update.h"

namespace replicant::models::sngan {
namespace {

void AddUpdate(const Updates::Update& update, const std::string& name,
               nn::StepGraph* workload) {
  workload->updates.insert(workload->updates.end(), update.updates.begin(),
                           update.updates.end());
  workload->losses.push_back({name + "_loss", update.loss});
  workload->outputs.push_back({name + "_logits", update.logits});
  for (const nn::NamedOutput& gradient :
       update.trained.Named(*workload->graph)) {
    workload->gradients.push_back(gradient);
  }
}

}  // namespace

StepGraphConfig StepGraphConfig::Read(config::Reader& reader) {
  StepGraphConfig c;
  reader.Section("model", &c.model, "the networks and their training");
  reader.Field("batch_size", &c.batch_size, {1, 65536},
               "real images of one step, and as many made ones");
  reader.Field("kind", &c.kind,
               {{"both", GraphKind::kBoth},
                {"discriminator", GraphKind::kDiscriminator},
                {"generator", GraphKind::kGenerator},
                {"evaluate", GraphKind::kEvaluate}},
               "what is updated: both, one after the other, or one of them; "
               "evaluate: nothing, images and logits with the running "
               "statistics");
  reader.Field("seed", &c.seed, {0, INT64_MAX}, "of first values");
  return c;
}

nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  nn::StepGraph workload;
  workload.graph = std::make_unique<Graph>(static_cast<uint64_t>(config.seed));
  Graph& graph = *workload.graph;
  const auto add_latent = [&](const char* z, const char* label) -> Latent {
    return {
        .z = graph.Input(z, dtype,
                         Shape({config.batch_size, config.model.latent_size})),
        .label = graph.Input(label, DType::kI32, Shape({config.batch_size}))};
  };
  Updates updates(graph, config.model, dtype);
  const GraphKind kind = config.kind;
  if (kind == GraphKind::kEvaluate) {
    const Latent latent = add_latent("z", "fake_label");
    const Output image = updates.generator()(latent.z, latent.label, nullptr);
    workload.outputs = {
        {"image", image},
        {"logits", updates.discriminator()(image, latent.label, nullptr)}};
  }
  if (kind == GraphKind::kBoth || kind == GraphKind::kDiscriminator) {
    const Batch real = AddBatchInputs(graph, config.model, config.batch_size);
    AddUpdate(updates.UpdateDiscriminator(real, add_latent("z", "fake_label")),
              "discriminator", &workload);
  }
  if (kind == GraphKind::kBoth || kind == GraphKind::kGenerator) {
    AddUpdate(
        updates.UpdateGenerator(add_latent("generator_z", "generator_label")),
        "generator", &workload);
  }
  return workload;
}

}  // namespace replicant::models::sngan
