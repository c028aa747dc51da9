#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace replicant::metrics {

// A run that goes back to a checkpoint leaves a branch behind: points of later
// steps, which its new points would repeat. These functions remove them, so
// that the steps of a file never fall. A file that cannot be changed is named
// in the log and stays as it is. Nobody may write to the files meanwhile.

// Cuts each event file of the folder before its first event of a later step.
// Other folders in it, and files of other names, stay.
void CutEvents(const std::filesystem::path& folder, int64_t step);

// Cuts a file of JSON lines before its first line whose key "step" is later.
void CutJsonLines(const std::filesystem::path& file, int64_t step);

// Does both for all curves of a run: event files by Curves, over updates and,
// if `frames` is given, over environment frames, and RUN/*.jsonl.
void RewindRun(const std::filesystem::path& run_folder, int64_t step,
               std::optional<int64_t> frames);

}  // namespace replicant::metrics
