// Images per second of one thread: files of an image source to what training
// sees, u8.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "learner/data/encoded_images.h"

namespace replicant::data {
namespace {

void Run(const std::string& path, bool is_tar, int64_t side, int64_t count) {
  const auto source =
      MakeEncodedSource(is_tar ? ListTarShards(path) : ListImageFolder(path));
  const auto reader = source->MakeReader();
  std::vector<uint8_t> rgb(static_cast<size_t>(side * side * 3));
  const Clock::TimePoint start = Clock::Real().Now();
  for (int64_t i = 0; i < count; ++i) {
    reader->Read(i % source->size(),
                 View({}, RandomStream(1, fmt::format("view-{}", i))), side,
                 rgb);
  }
  const double seconds = ToSeconds(Clock::Real().Now() - start);
  fmt::print("{{\"images_per_s\": {:.1f}}}\n",
             static_cast<double>(count) / seconds);
}

}  // namespace
}  // namespace replicant::data

int main(int argc, char** argv) {
  CLI::App app("Images per second of one thread, as training sees them.");
  std::string path;
  bool is_tar = false;
  int64_t side = 224;
  int64_t count = 1000;
  app.add_option("--path", path, "image folder or tar files")->required();
  app.add_flag("--tar", is_tar, "tar files");
  app.add_option("--side", side, "pixels");
  app.add_option("--count", count, "images to read");
  CLI11_PARSE(app, argc, argv);
  try {
    replicant::data::Run(path, is_tar, side, count);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_images: %s\n", e.what());
    return 1;
  }
  return 0;
}
