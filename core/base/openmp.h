#pragma once

namespace replicant {

// Makes idle threads of OpenMP sleep after a millisecond or two (unless
// GOMP_SPINCOUNT says otherwise), instead of spinning on, for programs that
// share their cores: actors beside a learner turn a spinning team's step of 4
// ms into 26.
//
// The library reads OMP_WAIT_POLICY when it is loaded, before main(). So where
// that is not set, this sets it to "passive" and starts the program again in
// this process, with the same arguments; where it is set, whatever to, it
// returns at once. Call it first in main(), with main()'s argv.
//
// Throws IoError if the program cannot be started again.
void UsePassiveOpenMp(char* const* argv);

}  // namespace replicant
