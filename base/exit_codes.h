#pragma once

namespace replicant {

// Exit code of a process that is done, but could not write all of its results:
// EX_IOERR of sysexits.h. See also kExitConfig and kExitPeerLost in
// base/process.h.
inline constexpr int kExitUnsaved = 74;

// Whether a process with this exit code has done its work, written or not.
inline constexpr bool IsDoneWith(int exit_code) {
  return exit_code == 0 || exit_code == kExitUnsaved;
}

}  // namespace replicant
