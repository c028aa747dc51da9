// The executable of one program. REPLICANT_PROGRAM is its name.
#include "programs/program.h"

int main(int argc, char** argv) {
  return replicant::programs::RunProgram(
      REPLICANT_PROGRAM, argc, argv, replicant::programs::Registry::BuiltIn());
}
