#include "models/resnet/step_graph.h"

#include "models/resnet/update.h"

namespace replicant::models::resnet {

StepGraphConfig StepGraphConfig::Read(config::Reader& reader) {
  StepGraphConfig c;
  reader.Section("model", &c.model, "the network and its training");
  reader.Field("batch_size", &c.batch_size, {1, 65536}, "images of one step");
  reader.Field(
      "kind", &c.kind,
      {{"train", GraphKind::kTrain}, {"evaluate", GraphKind::kEvaluate}},
      "train: a whole update; evaluate: logits with the running "
      "statistics");
  reader.Field("seed", &c.seed, {0, INT64_MAX}, "of first values");
  return c;
}

nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  nn::StepGraph workload;
  workload.graph = std::make_unique<Graph>(static_cast<uint64_t>(config.seed));
  Graph& graph = *workload.graph;
  const Batch batch = AddBatchInputs(graph, config.model, config.batch_size);
  if (config.kind == GraphKind::kEvaluate) {
    const ResNet network(graph, config.model, dtype);
    workload.outputs = {{"logits", network(batch.image, nullptr)}};
    return workload;
  }
  const Update update = BuildUpdate(graph, config.model, dtype, batch);
  workload.updates = update.updates;
  workload.losses = {{"loss", update.loss}};
  workload.outputs = {{"accuracy", update.accuracy}, {"logits", update.logits}};
  workload.gradients = update.trained.Named(graph);
  return workload;
}

}  // namespace replicant::models::resnet
