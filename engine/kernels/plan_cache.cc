#include "engine/kernels/plan_cache.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::kernels {
namespace {

constexpr std::string_view kHeader = "replicant tuned plans, format 1";
constexpr std::string_view kHeaderOfAnyFormat =
    "replicant tuned plans, format ";
constexpr std::string_view kUnit = " us";
// Maximum size of the file: room for some hundred thousand entries.
constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

// Takes the text up to `end`, or all of it, from the front of `text`.
std::string_view TakeUntil(char end, std::string_view* text) {
  const size_t size = std::min(text->find(end), text->size());
  const std::string_view taken = text->substr(0, size);
  text->remove_prefix(std::min(size + 1, text->size()));
  return taken;
}

// "12.345 us"; nullopt for anything else.
std::optional<double> ParseTime(std::string_view text) {
  if (!text.ends_with(kUnit)) return std::nullopt;
  text.remove_suffix(kUnit.size());
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value) ||
      value < 0.0) {
    return std::nullopt;
  }
  return value;
}

// Throws IoError "line 2: ..." if the text is not a cache of this format.
std::map<std::string, PlanCache::Entry> Parse(std::string_view text) {
  const std::string_view header = TakeUntil('\n', &text);
  if (header != kHeader) {
    throw IoError(header.starts_with(kHeaderOfAnyFormat)
                      ? fmt::format("line 1: '{}', want '{}'", header, kHeader)
                      : fmt::format("line 1: want '{}'", kHeader));
  }
  std::map<std::string, PlanCache::Entry> entries;
  for (int number = 2; !text.empty(); ++number) {
    std::string_view line = TakeUntil('\n', &text);
    std::array<std::string_view, 4> columns;
    for (std::string_view& column : columns) column = TakeUntil('\t', &line);
    const auto [problem, plan, time, first_time] = columns;
    const std::optional<double> time_us = ParseTime(time);
    const std::optional<double> first_time_us = ParseTime(first_time);
    if (problem.empty() || plan.empty() || !time_us || !first_time_us ||
        !line.empty()) {
      throw IoError(fmt::format(
          "line {}: want a problem, a plan and two times, between tabs",
          number));
    }
    entries[std::string(problem)] = {.plan = std::string(plan),
                                     .time_us = *time_us,
                                     .first_time_us = *first_time_us};
  }
  return entries;
}

bool IsOneColumn(std::string_view text) {
  return !text.empty() && text.find_first_of("\t\n") == std::string_view::npos;
}

}  // namespace

std::filesystem::path PlanCache::DefaultFolder() {
  const auto folder_of = [](const char* name) -> std::filesystem::path {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  // relative paths are invalid, says the XDG Base Directory Specification
  const std::filesystem::path cache = folder_of("XDG_CACHE_HOME");
  if (cache.is_absolute()) return cache / "replicant";
  const std::filesystem::path home = folder_of("HOME");
  return home.empty() ? "" : home / ".cache/replicant";
}

PlanCache::PlanCache(const std::filesystem::path& folder) {
  if (folder.empty()) {
    const MutexLock lock(mutex_);
    KeepToMemory("there is no folder for them: HOME is not set");
    return;
  }
  file_ = folder / "tuned_plans.txt";
  try {
    MakeFolders(folder);
  } catch (const IoError& e) {
    const MutexLock lock(mutex_);
    KeepToMemory(e.what());
  }
  ReadFile();
}

void PlanCache::FindOrTune(const std::string& problem,
                           const std::function<bool(const Entry&)>& take,
                           const std::function<std::optional<Entry>()>& tune) {
  const auto take_entry = [&] {
    const std::optional<Entry> entry = Find(problem);
    return entry && take(*entry);
  };
  if (take_entry()) return;
  const MutexLock turn(turn_);
  const std::optional<FileLock> lock = LockFile();
  if (lock) ReadFile();
  // from a thread or process that had its turn before
  if (take_entry()) return;
  const std::optional<Entry> tuned = tune();
  if (!tuned) return;
  REPLICANT_CHECK(IsOneColumn(problem) && IsOneColumn(tuned->plan),
                  "'{}', '{}'", problem, tuned->plan);
  {
    const MutexLock guard(mutex_);
    entries_[problem] = *tuned;
  }
  if (lock) WriteFile();
}

std::optional<PlanCache::Entry> PlanCache::Find(const std::string& problem) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(problem);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

std::optional<FileLock> PlanCache::LockFile() {
  {
    const MutexLock lock(mutex_);
    if (is_in_memory_) return std::nullopt;
  }
  try {
    return FileLock::Await(file_.parent_path() / "tuned_plans.lock");
  } catch (const IoError& e) {
    const MutexLock lock(mutex_);
    KeepToMemory(e.what());
    return std::nullopt;
  }
}

void PlanCache::ReadFile() {
  std::error_code error;
  if (!std::filesystem::exists(file_, error) && !error) return;
  const MutexLock lock(mutex_);
  try {
    for (auto& [problem, entry] :
         Parse(replicant::ReadFile(file_, kMaxFileBytes))) {
      entries_[problem] = entry;
    }
  } catch (const IoError& e) {
    KeepToMemory(
        fmt::format("{}: {}; hint: remove the file, or name another "
                    "folder in cuda_autotune.cache",
                    file_.string(), e.what()));
  }
}

void PlanCache::WriteFile() {
  const MutexLock lock(mutex_);
  // refused since the lock was taken
  if (is_in_memory_) return;
  std::string text = fmt::format("{}\n", kHeader);
  for (const auto& [problem, entry] : entries_) {
    text += fmt::format("{}\t{}\t{:.3f}{}\t{:.3f}{}\n", problem, entry.plan,
                        entry.time_us, kUnit, entry.first_time_us, kUnit);
  }
  try {
    AtomicWriteFile(file_, text);
  } catch (const IoError& e) {
    KeepToMemory(e.what());
  }
}

void PlanCache::KeepToMemory(const std::string& why) {
  spdlog::warn("tuned plans are not saved: {}", why);
  is_in_memory_ = true;
}

}  // namespace replicant::kernels
