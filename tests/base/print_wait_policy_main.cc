// Prints the policy under which it runs, and its arguments.
#include <cstdio>
#include <cstdlib>

#include "base/openmp.h"

int main(int argc, char** argv) {
  replicant::UsePassiveOpenMp(argv);
  std::printf("%s", std::getenv("OMP_WAIT_POLICY"));
  for (int i = 1; i < argc; ++i) std::printf(" %s", argv[i]);
}
