#include "models/resnet/step_graph.h"

#include "engine/nn/single_replica.h"
#include "models/resnet/update.h"

namespace replicant::models::resnet {

StepGraphConfig StepGraphConfig::Read(config::Reader& reader) {
  StepGraphConfig c;
  reader.Section("model", &c.model, "the network and its training");
  reader.Field("batch_size", &c.batch_size, {1, 65536}, "images per step");
  reader.Field(
      "kind", &c.kind,
      {{"train", GraphKind::kTrain}, {"evaluate", GraphKind::kEvaluate}},
      "computation of the graph. train: a whole update; evaluate: loss, "
      "accuracy and logits with the running statistics");
  reader.Field("seed", &c.seed, {0, INT64_MAX}, "seed of the initial values");
  return c;
}

nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  nn::StepGraph step;
  step.graph = std::make_unique<Graph>(static_cast<uint64_t>(config.seed));
  Graph& graph = *step.graph;
  nn::SingleReplica replica(graph);
  const Batch batch = AddBatchInputs(graph, config.model, config.batch_size);
  step.num_classes = {{"label", config.model.num_classes}};
  if (config.kind == GraphKind::kEvaluate) {
    const ResNet network(replica, config.model, dtype);
    const Output logits = network(batch.image, nullptr);
    const Score score = BuildScore(logits, batch.label, config.model);
    step.losses = {{"loss", score.loss}};
    step.outputs = {{"accuracy", score.accuracy}, {"logits", logits}};
    return step;
  }
  const Update update = BuildUpdate(replica, config.model, dtype, batch);
  step.updates = update.updates;
  step.losses = {{"loss", update.score.loss}};
  step.outputs = {{"accuracy", update.score.accuracy},
                  {"logits", update.logits}};
  step.AddGradients(update.trained);
  return step;
}

}  // namespace replicant::models::resnet
