#pragma once

namespace replicant::programs {

// main() of an executable that is the one program `name`, with the names of
// Registry::BuiltIn(); the other programs lie beside it. Otherwise as
// RunProgram() (programs/program.h).
//
// A header of its own: an executable for each program compiles it.
int RunBuiltInProgram(const char* name, int argc, char** argv);

}  // namespace replicant::programs
