#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/graph/graph.h"
#include "engine/nn/replica_context.h"
#include "replicator/replicator.h"

// Training without writing a loop, after Keras' model.fit():
//
//   const FitResult result = Fit(model, examples, {.folder = "runs/spirals",
//                                                  .epochs = 20,
//                                                  .evaluation = &held_out});
//
// Runs the learner's loop (learner/learner.h) on the model: curves, a line in
// learner.jsonl, checkpoints, and a resume from the newest one of `folder`.
namespace replicant::fit {

// Examples in memory: column `name` is a tensor [N, ...], and row i of all
// columns is example i.
struct Dataset {
  struct Column {
    std::string name;
    HostTensor values;
    // For class numbers (i32, i64) in [0, num_classes). 0: no limit.
    int64_t num_classes = 0;
  };
  std::vector<Column> columns;

  // Throws InvalidArgument for no columns, a column without rows, and columns
  // of different lengths.
  int64_t size() const;
};

// A model: its scores on a batch; training minimises the first. All scores
// are floating scalars, means over the batch's rows: {{"loss", ...},
// {"accuracy", ...}}. The function declares the variables; the trainable ones
// are trained.
struct Model {
  using Scores = std::vector<std::pair<std::string, graph::Output>>;

  std::function<Scores(graph::Graph&, const replicator::Inputs&)> scores;
  // Updates `variables` with `gradients` (their means over all replicas) in
  // step `step`, i64[], counted from 0. Empty: Adam with a rate of 1e-3.
  std::function<graph::Output(
      nn::ReplicaContext&, const std::vector<graph::VariableId>& variables,
      const std::vector<graph::Output>& gradients, graph::Output step)>
      optimizer = {};
};

struct FitOptions {
  // Folder of the run: checkpoints, curves, learner.jsonl.
  std::filesystem::path folder;
  int64_t epochs = 1;
  // Over all replicas of a group. The examples left at the end of an epoch
  // begin the first batch of the next epoch.
  int64_t batch_size = 32;
  // Examples for an evaluation after every epoch; null for none. Every score
  // appears as "evaluation_<name>".
  const Dataset* evaluation = nullptr;
  uint64_t seed = 0;
  double checkpoint_interval_s = 300.0;
  double log_interval_s = 5.0;
  replicator::ReplicationConfig replication = {};
  replicator::ProcessRank place = {};
  // Called between steps; true ends the run early.
  std::function<bool()> should_stop = [] { return false; };
};

struct FitResult {
  int64_t num_steps = 0;  // of the run, over all resumes
  // For each step in this call that ended an epoch, or several at once if the
  // batch is larger than the dataset: the means of its scores over its
  // steps, and the scores of the evaluation. Empty except in the first
  // process.
  std::vector<std::map<std::string, double>> epochs;
  // The trained variables by name; only in the first process.
  std::map<std::string, HostTensor> variables;
};

// Trains to the end of the epochs. Resumes from the folder's checkpoint if
// there is one; a run that has ended trains no further. Throws InvalidArgument
// for datasets and options that do not fit, and what Replicator::Build(),
// MakeReplicator() and Learner throw.
FitResult Fit(const Model& model, const Dataset& training,
              const FitOptions& options);

}  // namespace replicant::fit
