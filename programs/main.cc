// The executable of one program. REPLICANT_PROGRAM is its name.
#include "programs/built_in_program.h"

int main(int argc, char** argv) {
  return replicant::programs::RunBuiltInProgram(REPLICANT_PROGRAM, argc, argv);
}
