// Images per second of one thread: an image source to what training sees, u8.
// Can also write rendered images as an image folder, for a peer to read.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "base/rng.h"
#include "learner/data/encoded_images.h"
#include "programs/run/registry.h"

namespace replicant::data {
namespace {

struct Options {
  std::string source = "image_folder";
  std::string path;
  std::string write;
  bool is_evaluation = false;
  int64_t side = 224;
  int64_t count = 1000;
};

void Run(const Options& options) {
  ImagesConfig config;
  config.train = config.evaluation = options.path;
  config.num_train = config.num_evaluation = options.count;
  const auto source = programs::Registry::BuiltIn().images.at(options.source)(
      config, options.is_evaluation ? Split::kEvaluation : Split::kTrain,
      /*seed=*/0);
  const auto reader = source->MakeReader();
  const auto side = options.side;
  std::vector<uint8_t> rgb(static_cast<size_t>(side * side * 3));
  const Clock::TimePoint start = Clock::Real().Now();
  const std::clock_t cpu_start = std::clock();
  for (int64_t i = 0; i < options.count; ++i) {
    const View view =
        options.is_evaluation
            ? View(1.0)
            : View({}, RandomStream(1, fmt::format("view-{}", i)));
    const int32_t label = reader->Read(i % source->size(), view, side, rgb);
    if (options.write.empty()) continue;
    const std::filesystem::path folder =
        std::filesystem::path(options.write) /
        source->class_names().at(static_cast<size_t>(label));
    MakeFolders(folder);
    AtomicWriteFile(folder / fmt::format("{:06}.png", i),
                    EncodePng({.height = side, .width = side}, rgb));
  }
  const double seconds = ToSeconds(Clock::Real().Now() - start);
  const double cpu_seconds =
      static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const auto count = static_cast<double>(options.count);
  fmt::print("{{\"images_per_s\": {:.1f}, \"images_per_cpu_s\": {:.1f}}}\n",
             count / seconds, count / cpu_seconds);
}

}  // namespace
}  // namespace replicant::data

int main(int argc, char** argv) {
  CLI::App app("Images per second of one thread, as training sees them.");
  replicant::data::Options options;
  app.add_option("--source", options.source,
                 "image_folder, tar_shards or rendered");
  app.add_option("--path", options.path, "image folder or tar files");
  app.add_option("--write", options.write,
                 "folder that gets the images of a source with named classes");
  app.add_flag("--evaluation", options.is_evaluation,
               "the evaluation's images, as it sees them");
  app.add_option("--side", options.side, "pixels");
  app.add_option("--count", options.count, "images to read");
  CLI11_PARSE(app, argc, argv);
  try {
    replicant::data::Run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_images: %s\n", e.what());
    return 1;
  }
  return 0;
}
