// The program of docs/graph.md: a layer learns from batches of 256 rows, with
// its own graph, optimizer and executor. Distribute() lets a launcher run it in
// several processes, each on its part of every batch:
//
//   transparent
//   mpirun -n 2 transparent
//   REPLICANT_NUM_PROCESSES=2 REPLICANT_RENDEZVOUS=/tmp/meet
//     REPLICANT_PROCESS=0 transparent     (and once more with 1)
#include <cmath>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/backend.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "engine/runtime/variable_store.h"
#include "replicator/strategies/distribute.h"

using namespace replicant;  // NOLINT

int main() try {
  const auto processes = replicator::Distribute(/*batch_size=*/256);

  graph::Graph g(/*seed=*/1);
  replicator::DistributedReplica replica(processes.get(), g);
  const graph::Output x =
      replica.Input("observation", DType::kF32, Shape({256, 24}));
  const nn::Dense hidden(g, "hidden", 24, 256);
  // the layer learns to give every row's mean
  const graph::Output mean =
      graph::ReduceMean(x, {.axes = {1}, .keep_dims = true});
  const graph::Output loss =
      graph::ReduceMean(graph::Square(graph::Sub(hidden(x), mean)));
  std::vector<graph::Output> weights;
  for (const graph::VariableId v : hidden.variables()) {
    weights.push_back(g.Read(v));
  }
  const nn::StepCounter step = nn::AddStepCounter(g);
  const graph::Output update =
      nn::Adam(replica, "adam", hidden.variables(),
               replica.MeanGradients(graph::Gradients(loss, weights)),
               g.Scalar(1e-2, DType::kF32), step.value,
               /*options=*/{}, {.max_global_norm = 1.0});

  const auto backend = kernels::MakeBackend("cpu", {.num_threads = 1});
  runtime::VariableStore store(*backend, /*seed=*/1);
  const auto plan = replica.Compile(
      {.outputs = {loss}, .updates = {update, step.advance}}, store);
  RandomStream random(/*seed=*/2, "observations");
  for (int i = 0; i < 20; ++i) {
    for (float& v : plan->input("observation").Span<float>()) {
      v = static_cast<float>(random.Normal());
    }
    plan->Run();
    if (processes->leads()) {
      std::printf("loss %.6f\n", plan->output(0).Span<float>()[0]);
    }
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "transparent: %s\n", e.what());
  return 1;
}
