// Every program of a run, with one more workload.
//
//   spirals fleet --config examples/own_workload/spirals.yaml
#include "programs/program.h"
#include "spirals.h"

int main(int argc, char** argv) {
  auto registry = replicant::programs::Registry::BuiltIn();
  registry.workloads.Add(SpiralsWorkload());
  return replicant::programs::RunProgram(argc, argv, registry);
}
