#include "engine/kernels/plan_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "tests/support/log_lines.h"

namespace replicant::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LogLines;
using ::testing::StartsWith;
using Entry = PlanCache::Entry;

constexpr const char* kHeader = "replicant tuned plans, format 1\n";

// The entry that a caller ends with, and whether it tuned it.
struct Outcome {
  bool operator==(const Outcome&) const = default;

  std::string plan;
  bool is_tuned = false;
};

// Takes any entry except for a plan called "gone".
Outcome Ask(PlanCache& cache, const std::string& problem,
            const std::string& plan) {
  Outcome outcome;
  cache.FindOrTune(
      problem,
      [&](const Entry& entry) {
        outcome.plan = entry.plan;
        return entry.plan != "gone";
      },
      [&]() -> std::optional<Entry> {
        outcome = {.plan = plan, .is_tuned = true};
        return Entry{.plan = plan, .time_us = 1.5, .first_time_us = 2.25};
      });
  return outcome;
}

class PlanCacheTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const {
    return folder_.path() / "tuned_plans.txt";
  }
  void Write(const std::string& text) const { std::ofstream(file()) << text; }

  const TemporaryFolder folder_;
};

TEST_F(PlanCacheTest, AProblemIsTunedOnce) {
  PlanCache cache(folder_.path());
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
  EXPECT_EQ(Ask(cache, "a", "y"), (Outcome{"x", false}));
  EXPECT_EQ(Ask(cache, "b", "y"), (Outcome{"y", true}));
}

TEST_F(PlanCacheTest, AnotherProcessFindsWhatOneTuned) {
  PlanCache early(folder_.path());
  {
    PlanCache cache(folder_.path());
    Ask(cache, "device, library: matmul 2x3", "algo 3, tile 4");
    Ask(cache, "another", "x");
  }
  EXPECT_EQ(ReadFile(file()),
            std::string(kHeader) +
                "another\tx\t1.500 us\t2.250 us\n"
                "device, library: matmul 2x3\talgo 3, tile 4\t1.500 us\t2.250 "
                "us\n");
  PlanCache later(folder_.path());
  EXPECT_EQ(Ask(later, "another", "y"), (Outcome{"x", false}));
  // it was made before, and reads the file before it tunes
  EXPECT_EQ(Ask(early, "another", "y"), (Outcome{"x", false}));
}

TEST_F(PlanCacheTest, AnEntryThatIsRefusedIsTunedAnew) {
  {
    PlanCache cache(folder_.path());
    Ask(cache, "a", "gone");
    EXPECT_EQ(Ask(cache, "a", "y"), (Outcome{"y", true}));
  }
  PlanCache later(folder_.path());
  EXPECT_EQ(Ask(later, "a", "z"), (Outcome{"y", false}));
}

TEST_F(PlanCacheTest, NothingIsKeptWhereNothingWasTuned) {
  PlanCache cache(folder_.path());
  cache.FindOrTune(
      "a", [](const Entry&) { return true; }, [] { return std::nullopt; });
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
}

// catches a lock that stays behind when tuning throws
TEST_F(PlanCacheTest, AnExceptionPassesAndLeavesTheTurnToOthers) {
  PlanCache cache(folder_.path());
  EXPECT_THROW(cache.FindOrTune(
                   "a", [](const Entry&) { return true; },
                   []() -> std::optional<Entry> {
                     throw std::runtime_error("device lost");
                   }),
               std::runtime_error);
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
  PlanCache other(folder_.path());
  EXPECT_EQ(Ask(other, "b", "x"), (Outcome{"x", true}));
}

struct BadFile {
  const char* name;
  const char* text;
  const char* message;
};

class BadPlanCacheTest : public PlanCacheTest,
                         public ::testing::WithParamInterface<BadFile> {};

TEST_P(BadPlanCacheTest, IsNamedOnceAndKept) {
  Write(GetParam().text);
  const LogLines log;
  PlanCache cache(folder_.path());
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
  EXPECT_EQ(Ask(cache, "b", "y"), (Outcome{"y", true}));
  EXPECT_EQ(Ask(cache, "a", "z"), (Outcome{"x", false}));
  EXPECT_EQ(ReadFile(file()), GetParam().text);
  EXPECT_THAT(log.lines(),
              ElementsAre("tuned plans are not saved: " + file().string() +
                          ": " + GetParam().message +
                          "; hint: remove the file, or name another folder in "
                          "cuda_autotune.cache"));
}

constexpr const char* kWantColumns =
    "line 2: want a problem, a plan and two times, between tabs";

INSTANTIATE_TEST_SUITE_P(
    Files, BadPlanCacheTest,
    ::testing::Values(
        BadFile{"Foreign", "plans: {}\n",
                "line 1: want 'replicant tuned plans, format 1'"},
        BadFile{"Empty", "", "line 1: want 'replicant tuned plans, format 1'"},
        BadFile{"Newer", "replicant tuned plans, format 2\n",
                "line 1: 'replicant tuned plans, format 2', want 'replicant "
                "tuned plans, format 1'"},
        BadFile{"CutOff", "replicant tuned plans, format 1\na\tx\t1.0 us\t2",
                kWantColumns},
        BadFile{"NoPlan",
                "replicant tuned plans, format 1\na\t\t1.0 us\t2.0 us\n",
                kWantColumns},
        BadFile{"NotATime",
                "replicant tuned plans, format 1\na\tx\tnan us\t2.0 us\n",
                kWantColumns},
        BadFile{"Negative",
                "replicant tuned plans, format 1\na\tx\t1.0 us\t-2.0 us\n",
                kWantColumns},
        BadFile{"TooMany",
                "replicant tuned plans, format 1\na\tx\t1 us\t2 us\tz\n",
                kWantColumns}),
    [](const auto& test) { return test.param.name; });

// catches a file that breaks while a process runs and is then overwritten
TEST_F(PlanCacheTest, AFileThatBreaksLaterIsKept) {
  PlanCache cache(folder_.path());
  Ask(cache, "a", "x");
  Write("something else");
  const LogLines log;
  EXPECT_EQ(Ask(cache, "b", "y"), (Outcome{"y", true}));
  EXPECT_EQ(ReadFile(file()), "something else");
  EXPECT_EQ(log.lines().size(), 1U);
  EXPECT_EQ(Ask(cache, "a", "z"), (Outcome{"x", false}));
}

TEST_F(PlanCacheTest, AFolderThatCannotBeMadeIsOneWarning) {
  Write(kHeader);
  const LogLines log;
  PlanCache cache(file() / "folder");
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
  EXPECT_EQ(Ask(cache, "b", "x"), (Outcome{"x", true}));
  EXPECT_EQ(Ask(cache, "a", "y"), (Outcome{"x", false}));
  EXPECT_THAT(log.lines(),
              ElementsAre(StartsWith("tuned plans are not saved: ")));
}

// A folder where the lock cannot be made; root may write to any folder that
// merely forbids it. Its entries are read all the same.
TEST_F(PlanCacheTest, AFolderThatCannotBeWrittenIsReadWithOneWarning) {
  Write(std::string(kHeader) + "a\tx\t1.000 us\t2.000 us\n");
  std::filesystem::create_directory(folder_.path() / "tuned_plans.lock");
  const LogLines log;
  PlanCache cache(folder_.path());
  EXPECT_EQ(Ask(cache, "a", "z"), (Outcome{"x", false}));
  EXPECT_THAT(log.lines(), IsEmpty());
  EXPECT_EQ(Ask(cache, "b", "y"), (Outcome{"y", true}));
  EXPECT_EQ(Ask(cache, "c", "y"), (Outcome{"y", true}));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("tuned_plans.lock")));
  EXPECT_THAT(ReadFile(file()), Not(HasSubstr("b\t")));
}

TEST_F(PlanCacheTest, WithoutAFolderEntriesAreInMemory) {
  const LogLines log;
  PlanCache cache("");
  EXPECT_EQ(Ask(cache, "a", "x"), (Outcome{"x", true}));
  EXPECT_EQ(Ask(cache, "a", "y"), (Outcome{"x", false}));
  EXPECT_THAT(log.lines(),
              ElementsAre("tuned plans are not saved: there is no folder for "
                          "them: HOME is not set"));
}

// Writers with separate objects, as in processes: each adds its own entries and
// one that all need. Catches a writer that loses another's entries, and a
// problem that is tuned twice.
TEST_F(PlanCacheTest, WritersAtOnceLoseNothing) {
  constexpr int kWriters = 4;
  constexpr int kEntries = 6;
  std::atomic<int> num_tuned = 0;
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      PlanCache cache(folder_.path());
      for (int i = 0; i < kEntries; ++i) {
        Ask(cache, fmt::format("writer {} {}", writer, i), "x");
        if (Ask(cache, fmt::format("shared {}", i), "x").is_tuned) ++num_tuned;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(num_tuned, kEntries);
  PlanCache cache(folder_.path());
  for (int i = 0; i < kEntries; ++i) {
    for (int writer = 0; writer < kWriters; ++writer) {
      const std::string problem = fmt::format("writer {} {}", writer, i);
      EXPECT_EQ(Ask(cache, problem, "y"), (Outcome{"x", false})) << problem;
    }
  }
}

// The same by processes.
TEST_F(PlanCacheTest, ProcessesAtOnceLoseNothing) {
  constexpr int kWriters = 3;
  constexpr int kEntries = 5;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters; ++writer) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      PlanCache cache(folder_.path());
      for (int i = 0; i < kEntries; ++i) {
        Ask(cache, fmt::format("writer {} {}", writer, i), "x");
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  PlanCache cache(folder_.path());
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int i = 0; i < kEntries; ++i) {
      const std::string problem = fmt::format("writer {} {}", writer, i);
      EXPECT_EQ(Ask(cache, problem, "y"), (Outcome{"x", false})) << problem;
    }
  }
}

// Sets a variable of the environment for its scope; null: unset.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~Variable() { Set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const char* value) {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }

  const char* const name_;
  std::optional<std::string> old_;
};

TEST(PlanCacheFolderTest, TheDefaultFolderIsTheUsersCache) {
  const Variable home("HOME", "/home/me");
  {
    const Variable cache("XDG_CACHE_HOME", "/cache");
    EXPECT_EQ(PlanCache::DefaultFolder(), "/cache/replicant");
  }
  {
    const Variable cache("XDG_CACHE_HOME", "not/absolute");
    EXPECT_EQ(PlanCache::DefaultFolder(), "/home/me/.cache/replicant");
  }
  const Variable cache("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(PlanCache::DefaultFolder(), "/home/me/.cache/replicant");
  const Variable no_home("HOME", nullptr);
  EXPECT_EQ(PlanCache::DefaultFolder(), "");
}

}  // namespace
}  // namespace replicant::kernels
