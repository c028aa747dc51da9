#include "tools/probe/resnet_step.h"

#include "engine/nn/single_replica.h"
#include "models/resnet/update.h"

namespace replicant::probe::resnet {

using graph::Graph;
using graph::Output;

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

StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  StepGraph step;
  step.graph = std::make_unique<Graph>(static_cast<uint64_t>(config.seed));
  Graph& graph = *step.graph;
  nn::SingleReplica replica(graph);
  const int64_t side = config.model.image_size;
  const models::resnet::Batch batch{
      .image = graph.Input("image", DType::kU8,
                           Shape({config.batch_size, side, side, 3})),
      .label = graph.Input("label", DType::kI32, Shape({config.batch_size}))};
  step.num_classes = {{"label", config.model.num_classes}};
  if (config.kind == GraphKind::kEvaluate) {
    const models::resnet::ResNet network(replica, config.model, dtype);
    const Output logits = network(batch.image, nullptr);
    const models::resnet::Score score =
        models::resnet::BuildScore(logits, batch.label, config.model);
    step.losses = {{"loss", score.loss}};
    step.outputs = {{"accuracy", score.accuracy}, {"logits", logits}};
    return step;
  }
  const models::resnet::Update update =
      models::resnet::BuildUpdate(replica, config.model, dtype, batch);
  step.updates = update.updates;
  step.losses = {{"loss", update.score.loss}};
  step.outputs = {{"accuracy", update.score.accuracy},
                  {"logits", update.logits}};
  step.AddGradients(update.trained);
  return step;
}

}  // namespace replicant::probe::resnet
