#include "base/metrics/rewind.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/metrics/curves.h"
#include "base/metrics/event_encoding.h"
#include "base/metrics/event_writer.h"

namespace replicant::metrics {
namespace {

namespace stdfs = std::filesystem;

void Truncate(const stdfs::path& file, int64_t size, int64_t step) {
  std::error_code error;
  stdfs::resize_file(file, static_cast<uintmax_t>(size), error);
  if (error) {
    spdlog::warn("{}: the points after step {} cannot be removed: {}",
                 file.string(), step, error.message());
  } else {
    spdlog::info(
        "{}: the points after step {} are removed: the run goes on "
        "from there",
        file.string(), step);
  }
}

// The offset of the first event of a later step; -1 if there is none.
int64_t FindLaterEvent(const stdfs::path& file, int64_t step) {
  std::ifstream in(file, std::ios::binary);
  int64_t offset = 0;
  char head[kMaxEventHeadBytes];
  while (in.seekg(offset)) {
    in.read(head, sizeof(head));
    const auto event = ParseEventHead({head, static_cast<size_t>(in.gcount())});
    if (!event) break;
    if (event->step > step) return offset;
    offset += event->record_bytes;
    in.clear();
  }
  return -1;
}

// As above, for a line.
int64_t FindLaterLine(const stdfs::path& file, int64_t step) {
  constexpr std::string_view kKey = "\"step\":";
  std::ifstream in(file, std::ios::binary);
  int64_t offset = 0;
  for (std::string line; std::getline(in, line);
       offset += static_cast<int64_t>(line.size()) + 1) {
    const size_t key = line.find(kKey);
    if (key == std::string::npos) continue;
    int64_t found = 0;
    std::from_chars(line.data() + key + kKey.size(), line.data() + line.size(),
                    found);
    if (found > step) return offset;
  }
  return -1;
}

template <typename Use>
void ForEachEntry(const stdfs::path& folder, const Use& use) {
  std::error_code missing;
  for (const auto& entry : stdfs::directory_iterator(folder, missing)) {
    use(entry);
  }
}

}  // namespace

void CutEvents(const stdfs::path& folder, int64_t step) {
  ForEachEntry(folder, [step](const stdfs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kEventFilePrefix) || !entry.is_regular_file()) return;
    const int64_t size = FindLaterEvent(entry.path(), step);
    if (size >= 0) Truncate(entry.path(), size, step);
  });
}

void CutJsonLines(const stdfs::path& file, int64_t step) {
  std::error_code missing;
  if (!stdfs::is_regular_file(file, missing)) return;
  const int64_t size = FindLaterLine(file, step);
  if (size >= 0) Truncate(file, size, step);
}

void RewindRun(const stdfs::path& run_folder, int64_t step,
               std::optional<int64_t> frames) {
  ForEachEntry(run_folder, [step](const stdfs::directory_entry& entry) {
    if (entry.path().extension() == ".jsonl") CutJsonLines(entry.path(), step);
  });
  const auto cut = [](const stdfs::path& folder, int64_t last) {
    ForEachEntry(folder, [last](const stdfs::directory_entry& entry) {
      if (entry.is_directory()) CutEvents(entry.path(), last);
    });
  };
  // version 0.1.0 wrote into the upper folders
  CutEvents(run_folder, step);
  cut(run_folder / Curves::kByUpdates, step);
  if (!frames) return;
  CutEvents(run_folder / Curves::kByFrames, *frames);
  cut(run_folder / Curves::kByFrames, *frames);
}

}  // namespace replicant::metrics
