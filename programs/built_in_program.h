#pragma once

namespace replicant::programs {

// main() of an executable for the one program `name`, with the entries of
// Registry::BuiltIn(). The other programs lie in the same folder. Otherwise as
// RunProgram() (programs/program.h).
//
// A separate header: an executable for each program compiles it.
int RunBuiltInProgram(const char* name, int argc, char** argv);

}  // namespace replicant::programs
