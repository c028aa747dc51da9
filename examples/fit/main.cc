// fit FOLDER EPOCHS: a classifier of two interleaved spirals, trained without a
// loop of your own. Called again, it continues from the checkpoint in FOLDER.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numbers>
#include <vector>

#include "base/rng.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "fit.h"

using namespace replicant;         // NOLINT
using namespace replicant::graph;  // NOLINT

static fit::Dataset Spirals(int64_t size, uint64_t seed) {
  HostTensor points(DType::kF32, Shape({size, 2}));
  HostTensor labels(DType::kI32, Shape({size}));
  RandomStream random(seed, "spirals");
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    const int32_t label = random.Normal() > 0.0 ? 1 : 0;
    const double radius = std::abs(std::sin(random.Normal()));
    const double angle = std::numbers::pi * (3.0 * radius + label);
    points.MutableSpan<float>()[2 * i] =
        static_cast<float>(radius * std::cos(angle));
    points.MutableSpan<float>()[2 * i + 1] =
        static_cast<float>(radius * std::sin(angle));
    labels.MutableSpan<int32_t>()[i] = label;
  }
  fit::Dataset dataset;
  dataset.columns.push_back({"point", std::move(points)});
  dataset.columns.push_back({"label", std::move(labels), /*num_classes=*/2});
  return dataset;
}

static fit::Model::Scores Classify(Graph& g, const replicator::Inputs& batch) {
  const nn::Dense first(g, "first", 2, 64);
  const nn::Dense second(g, "second", 64, 64);
  const nn::Dense last(g, "last", 64, 2);
  const Output logits = last(Tanh(second(Tanh(first(batch.at("point"))))));
  const Output label = batch.at("label");
  const Output is_right = Equal(Cast(ArgMax(logits), DType::kI32), label);
  return {{"loss", ReduceMean(SoftmaxCrossEntropyWithLabels(logits, label))},
          {"accuracy", ReduceMean(Cast(is_right, DType::kF32))}};
}

static Output Update(nn::ReplicaContext& replica,
                     const std::vector<VariableId>& variables,
                     const std::vector<Output>& gradients, Output step) {
  return nn::Adam(replica, "adam", variables, gradients,
                  replica.graph().Scalar(0.01, DType::kF32), step);
}

int main(int argc, char** argv) try {
  const fit::Dataset training = Spirals(4096, /*seed=*/1);
  const fit::Dataset held_out = Spirals(1000, /*seed=*/2);
  const fit::FitResult result =
      fit::Fit({.scores = &Classify, .optimizer = &Update}, training,
               {.folder = argc > 1 ? argv[1] : "fit_run",
                .epochs = argc > 2 ? std::atoi(argv[2]) : 40,
                .batch_size = 64,
                .evaluation = &held_out});
  for (const auto& epoch : result.epochs) {
    std::printf("loss %.3f accuracy %.3f\n", epoch.at("evaluation_loss"),
                epoch.at("evaluation_accuracy"));
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "fit: %s\n", e.what());
  return 1;
}
