#include "learner/data/check_images.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace replicant::data {
namespace {

// Reads the images that no other thread has taken.
void ReadSome(const ImageSource& source, const ImageCheckOptions& options,
              int64_t count, std::atomic<int64_t>& next, Mutex& mutex,
              ImageCheck& check) {
  const auto reader = source.MakeReader();
  std::vector<uint8_t> rgb(
      static_cast<size_t>(options.side * options.side * 3));
  for (int64_t i = next++; i < count; i = next++) {
    const int64_t index = i * source.size() / count;
    try {
      const int32_t label =
          reader->Read(index, View::Whole(), options.side, rgb);
      const std::string_view pixels(reinterpret_cast<const char*>(rgb.data()),
                                    rgb.size());
      const MutexLock lock(mutex);
      check.read.push_back({.index = index,
                            .label = label,
                            .digest = std::hash<std::string_view>()(pixels)});
    } catch (const IoError& error) {
      const MutexLock lock(mutex);
      check.unreadable.push_back({.index = index, .message = error.what()});
    }
  }
}

}  // namespace

ImageCheck CheckImages(const ImageSource& source,
                       const ImageCheckOptions& options) {
  const int64_t count = options.max_images == 0
                            ? source.size()
                            : std::min(source.size(), options.max_images);
  ImageCheck check;
  std::atomic<int64_t> next = 0;
  Mutex mutex;
  const Clock::TimePoint start = Clock::Real().Now();
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < std::max(options.threads, 1); ++i) {
      threads.push_back(std::make_unique<Thread>(
          "check-data", [&](const Thread::StopToken& /*token*/) {
            ReadSome(source, options, count, next, mutex, check);
          }));
    }
    for (const auto& thread : threads) thread->Join();
  }
  check.seconds = ToSeconds(Clock::Real().Now() - start);
  std::ranges::sort(check.read, {}, &ImageCheck::Read::index);
  std::ranges::sort(check.unreadable, {}, &ImageCheck::Unreadable::index);
  return check;
}

std::vector<ImagePair> FindCopies(const ImageCheck& a, const ImageCheck& b) {
  std::map<uint64_t, const ImageCheck::Read*> firsts;
  for (const ImageCheck::Read& read : a.read)
    firsts.emplace(read.digest, &read);
  std::vector<ImagePair> pairs;
  for (const ImageCheck::Read& read : b.read) {
    const auto found = firsts.find(read.digest);
    if (found == firsts.end() || found->second == &read) continue;
    pairs.push_back({.first = found->second->index,
                     .second = read.index,
                     .has_one_class = found->second->label == read.label});
  }
  return pairs;
}

}  // namespace replicant::data
