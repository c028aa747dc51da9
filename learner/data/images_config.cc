#include "learner/data/images_config.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>

#include "base/error.h"
#include "base/fs.h"
#include "learner/data/encoded_images.h"

namespace replicant::data {
namespace {

// `list` finds the images at a path; it also takes the path for training.
MakeImageSource SourceOf(EncodedImages (*list)(const std::filesystem::path&,
                                               const std::filesystem::path&)) {
  return [list](const ImagesConfig& config, Split split,
                uint64_t /*seed*/) -> std::shared_ptr<const ImageSource> {
    const bool is_train = split == Split::kTrain;
    const std::string& path = is_train ? config.train : config.evaluation;
    if (path.empty() && is_train) {
      throw ConfigError(fmt::format(
          "images.train: images.source {} needs a path", config.source));
    }
    if (path.empty()) return nullptr;
    const char* const key = is_train ? "images.train" : "images.evaluation";
    if (const std::string why = WhyMissing(path); !why.empty()) {
      throw ConfigError(fmt::format("{}: {}: {}", key, why, path));
    }
    std::shared_ptr<const ImageSource> source =
        MakeEncodedSource(list(path, config.train));
    spdlog::log(HasLosses(*source) ? spdlog::level::warn : spdlog::level::info,
                "{}: {}: {}", key, path, Describe(*source));
    return source;
  };
}

}  // namespace

ImagesConfig ImagesConfig::Read(config::Reader& reader) {
  ImagesConfig c;
  reader.Field("source", &c.source,
               "synthetic: waves under noise, made in the step, for "
               "benchmarks; rendered: frames of the Control Suite, the domain "
               "is the class; image_folder: a folder of image files for each "
               "class; tar_shards: tar files in WebDataset's layout");
  reader.Field("train", &c.train,
               "training images: a folder (image_folder), or a tar file or a "
               "folder of tar files (tar_shards), relative to the file that "
               "holds this key");
  reader.Field("evaluation", &c.evaluation,
               "evaluation images, in the same form; empty for none");
  reader.Field("num_train", &c.num_train, {1, 1'000'000'000},
               "images of an epoch; rendered only");
  reader.Field("num_evaluation", &c.num_evaluation, {0, 1'000'000'000},
               "images of an evaluation, disjoint from the training images; "
               "rendered only");
  reader.Field("variation", &c.variation, {0.0, 1.0},
               "how far cameras, lights and colours vary; 0: as in the Control "
               "Suite; rendered only");
  reader.Section("augmentation", &c.augmentation,
                 "random crop, flip and colours of training images");
  reader.Field("evaluation_crop", &c.evaluation_crop, {0.1, 1.0},
               "side of the square in the centre that an evaluation sees, as a "
               "share of the image's shorter side; not rendered");
  reader.Field("threads", &c.threads, {0, 1024},
               "threads of each process that read images ahead; 0: the step "
               "reads them itself");
  reader.Field("batches_ahead", &c.batches_ahead, {1, 64},
               "batches that are read ahead");
  return c;
}

ImageSources BuiltInImageSources() {
  return {{"image_folder", SourceOf(&ListImageFolder)},
          {"tar_shards", SourceOf([](const std::filesystem::path& path,
                                     const std::filesystem::path& /*train*/) {
             return ListTarShards(path);
           })}};
}

}  // namespace replicant::data
