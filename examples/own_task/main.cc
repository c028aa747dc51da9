// Every program of a run, with one more task.
//
//   see_saw fleet --config examples/own_task/see_saw.yaml
#include "programs/program.h"
#include "see_saw.h"

int main(int argc, char** argv) {
  auto registry = replicant::programs::Registry::BuiltIn();
  registry.tasks.Add(replicant::env::SeeSawTask(SEE_SAW_MODEL));
  return replicant::programs::RunProgram(argc, argv, registry);
}
