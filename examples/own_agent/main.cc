// Every program of a run, with one more agent.
//
//   ddpg fleet --config examples/own_agent/cartpole_ddpg.yaml
#include "ddpg.h"
#include "programs/program.h"

int main(int argc, char** argv) {
  auto registry = replicant::programs::Registry::BuiltIn();
  registry.workloads.Add(DdpgAgent());
  return replicant::programs::RunProgram(argc, argv, registry);
}
