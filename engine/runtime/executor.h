#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/numeric_check.h"
#include "engine/runtime/plan_report.h"
#include "engine/runtime/resident_input.h"
#include "engine/runtime/variable_store.h"

namespace replicant::runtime {

// The part of a graph that one plan computes.
struct PlanSpec {
  // Read with output(i) after a run.
  std::vector<graph::Output> outputs;
  // Nodes that write variables. A run also makes every update that these build
  // on.
  std::vector<graph::Output> updates;
};

struct CompileOptions {
  // Name of the plan where it is written out: letters, digits and _.
  std::string name = "step";
  graph::PassOptions passes;
  // Debug mode: checks inputs and variables before a run and floating-point
  // outputs after each kernel. The first tensor with NaN or infinity ends the
  // run with a NumericError that names it. Slow; switches off all fusion, so
  // that the error names an op of the user.
  bool check_finite = false;
  // Whether every kernel is timed (see Executor::profile()).
  bool has_profile = false;
  // Makes the kernels of ops that no backend has, such as calls between
  // replicas. Returns null for a node that the backend compiles.
  std::function<std::unique_ptr<kernels::Kernel>(const graph::Graph&,
                                                 const graph::Node&)>
      make_kernel = {};
  // The group of the plans of replicas that make updates together
  // (graph::UpdatePart), by Backend::CreateReplicaGroup(); null for a separate
  // plan. Used while the plan is compiled only.
  kernels::ReplicaGroup* replica_group = nullptr;
  // Inputs by name that are not copied for each run; they outlive the executor.
  // Executor::input() does not have them.
  std::map<std::string, ResidentInput*> residents = {};
};

// The time of one kernel of a plan.
struct KernelProfile {
  std::string op;
  std::string name;
  double mean_ms = 0.0;  // per run
};

// A compiled graph: compile once, run many times.
//
//   Executor step(graph, {.outputs = {loss}, .updates = {adam}}, store);
//   for (...) {
//     ... fill step.input("observation") ...
//     step.Run();
//     ... read step.output(0) ...
//   }
//
// Compiling runs the passes, orders the nodes, lays every tensor out in memory
// and prepares every kernel. Run() makes no allocation. The same inputs,
// variables, build and number of threads give the same bits.
//
// On a device whose memory the host cannot reach, inputs and outputs lie in
// pinned memory of the host, and the inputs of the next run can travel while
// this one computes:
//
//   step.Start();
//   ... fill step.input("observation") for the next run ...
//   step.SendInputs();
//   step.Wait();
//   ... read step.output(0) of this run ...
//
// From the second run on the launches are recorded and run as one, where the
// backend records (kernels::Backend::Record()).
//
// A node that updates a variable runs after everything that uses the version
// it replaces.
//
// Thread-safety: all calls from one thread, the one whose affinity the
// backend's threads inherit.
class Executor {
 public:
  // The store (and its backend) must outlive the executor; the graph need not.
  // Variables that the store lacks are declared in it.
  // Throws InvalidArgument if an output needs both the old and the new version
  // of a variable at once, or if an input and its resident differ in type,
  // DeviceError if the backend cannot run a node or does not have enough
  // memory, ShapeError if the store holds a variable of another type.
  Executor(const graph::Graph& graph, const PlanSpec& spec,
           VariableStore& store, const CompileOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Memory of the input, to be filled before Run(); it keeps its contents.
  // Inputs that the plan does not need exist as well. Throws InvalidArgument,
  // naming the inputs, for an unknown name.
  MutableTensorView input(std::string_view name);
  std::vector<std::string> input_names() const;

  // Value of PlanSpec::outputs[index] after the last Run().
  TensorView output(size_t index) const;
  size_t num_outputs() const;

  // Start() and Wait(). Throws DeviceError, and NumericError in debug mode.
  void Run();

  // Queues a run, with the inputs as they are now or were at SendInputs(). The
  // inputs may be filled again when it returns if can_fill_ahead(), and after
  // Wait() if not. Wait() comes before the next Start(). Throws what Run()
  // throws.
  void Start();
  // Blocks until the run is over; its outputs are then valid. Throws
  // DeviceError.
  void Wait();
  // Starts to copy the inputs of the next run to the device: they must not be
  // written before its Start() returns. Without a call, Start() does it.
  void SendInputs();
  // Cancels SendInputs(): the inputs may be read and filled again, and Start()
  // sends them anew. Waits for the copy.
  void RecallInputs();
  bool can_fill_ahead() const;

  const PlanReport& report() const;
  // With CompileOptions::has_profile: the kernels, the slowest first, over the
  // runs so far. Empty without. The stream is emptied after each kernel, so
  // that a device is slower than unprofiled.
  std::vector<KernelProfile> profile() const;
  // The compiled program, one line per node (graph::PrintText).
  std::string ToText() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace replicant::runtime
