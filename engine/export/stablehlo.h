#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/export/stablehlo_forms.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"

// Steps as StableHLO modules, for XLA on any device: jaxlib, libtpu and other
// PJRT plugins.
//
// A module is a function of values: a step's variables come in as arguments and
// their new values go out as results, in the same memory. Replicas are XLA's
// (`mhlo.num_replicas`): every device runs the module on tensors of one
// replica's shape, and collectives are over all of them. No tensor has a
// sharding. A runtime therefore hands each device its own buffers:
//
//   compile text with num_replicas = R, num_partitions = 1
//   on every device r: a buffer for each kVariable, with its first value
//   each step, on every device r:
//     a buffer for each kInput, with the rows of replica r
//     a buffer for each kDraw: output number `draw` of draws of replica r
//     execute; results of kVariable are the buffers of the next step
namespace replicant::exporting {

// The StableHLO version of the text. Any parser of the same major version that
// is not older reads it.
inline constexpr const char* kStableHloVersion = "1.0.0";

struct StableHloArgument {
  enum class Kind {
    // A variable of the step: the value before it.
    kVariable,
    // An input of the graph, filled before every run: a tensor of the batch, or
    // a scalar that the host knows (accumulation/batch).
    kInput,
    // Random numbers, drawn by the host: the output of a random op.
    kDraw
  };

  Kind kind = Kind::kInput;
  // Name of the variable, the input or the stream of random numbers.
  std::string name;
  // Type of the value that every replica passes.
  DType dtype = DType::kF32;
  Shape shape;
  // False: all replicas pass the same value. True: each passes its own. All
  // inputs and draws do, and variables of ReplicaAgreement::kPerReplica.
  bool is_per_replica = false;
  // A variable that the step writes: the result that takes over the argument's
  // memory (`tf.aliasing_output`). The caller gives the buffer away. If not
  // set, the argument stays the caller's and may be passed again.
  std::optional<size_t> aliased_result;
  // kDraw: index in StableHloModule::draws.outputs.
  size_t draw = 0;
};

struct StableHloResult {
  enum class Kind {
    // The value of a variable after the step.
    kVariable,
    // An output of the program.
    kOutput
  };

  Kind kind = Kind::kOutput;
  // Name of the variable, or from StableHloOptions::output_names.
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  // Whether replicas have different values.
  bool is_per_replica = false;
};

// A step in text, with all that is needed to run it.
struct StableHloModule {
  // Textual MLIR of the dialects func and stablehlo. The function @main has the
  // arguments and results below, in their order.
  std::string text;
  // Variables in the order of their declaration, then inputs in the order of
  // theirs, then draws. Variables that the step neither reads nor writes are
  // left out; inputs that it does not need are arguments as well.
  std::vector<StableHloArgument> arguments;
  // New values of variables, in the order of their arguments, then outputs.
  std::vector<StableHloResult> results;
  int num_replicas = 1;

  // The host's part of a step: it draws the random numbers of one replica, the
  // one whose program was given. Any kernels::Backend runs it and draws the
  // numbers of a Replicant step (engine/graph/ops/random.h), bit for bit if its
  // RandomNormal is the one of `cpu`.
  //
  // Its graph has the variables and inputs that the draws depend on: step
  // counters and, with accumulation, scalars of the host. Its updates advance
  // these counters, as the module advances its own. A runtime keeps them in a
  // store of the host, one for each replica and common to all modules of a
  // workload; sets them from the variables of the same names when those are
  // restored; and runs the program before the module. Without random ops it has
  // no outputs and no updates.
  graph::Program draws;
};

struct StableHloOptions {
  // Name of the module: letters, digits and _.
  std::string name = "step";
  // One for each of the program's outputs.
  std::vector<std::string> output_names;
  int num_replicas = 1;
  // kBF16: products and stored tensors as in a Replicant step
  // (engine/graph/passes/autocast.h). Arguments and results do not depend on
  // it. kAuto: kF32. kTF32 is refused.
  graph::Precision precision = graph::Precision::kF32;
  // Forms of ops added by higher layers, such as calls between replicas
  // (replicator/calls/stablehlo_collectives.h).
  StableHloForms forms = {};
};

// Returns the module that runs `program`, as it was built: before any pass,
// with the placeholders of calls between replicas.
//
// Throws InvalidArgument, at the line that added it, for an op without a form,
// and for a random op whose step depends on more than counters (variables that
// are one whole number each) and inputs.
StableHloModule ToStableHlo(const graph::Program& program,
                            const StableHloOptions& options);

// Names of the ops that have a form here, sorted; elementwise ops all have one
// and are not listed.
std::vector<std::string> StableHloOps();

// Arguments and results as JSON, for runtimes that have only the text:
// docs/export.md describes it.
std::string DescribeStableHlo(const StableHloModule& module);

}  // namespace replicant::exporting
