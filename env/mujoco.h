#pragma once

// The only place that includes MuJoCo: its C API with owning handles, and
// loading with exceptions instead of error buffers.
#include <mujoco/mujoco.h>

#include <filesystem>
#include <memory>
#include <string>

#include "env/model_image.h"

namespace replicant::env {

struct MjModelDeleter {
  void operator()(mjModel* model) const {
    image ? ModelImage::Release(model) : mj_deleteModel(model);
  }
  // of a copy that shares its memory with others
  std::shared_ptr<const ModelImage> image;
};
struct MjDataDeleter {
  void operator()(mjData* data) const { mj_deleteData(data); }
};
struct MjSpecDeleter {
  void operator()(mjSpec* spec) const { mj_deleteSpec(spec); }
};

// Each owns one object of MuJoCo and frees it.
using MjModelPtr = std::unique_ptr<mjModel, MjModelDeleter>;
using MjDataPtr = std::unique_ptr<mjData, MjDataDeleter>;
using MjSpecPtr = std::unique_ptr<mjSpec, MjSpecDeleter>;

// Parses a file of a model (MJCF, URDF, or an archive of either) that can still
// be edited. Includes and assets are found relative to the file.
// Throws IoError with MuJoCo's message if the file is missing or
// cannot be parsed.
MjSpecPtr ParseMjcf(const std::filesystem::path& path);

// Parses the text of an MJCF file, called `name` in messages. Includes and
// assets are found relative to the working folder. Throws IoError with MuJoCo's
// message if the text cannot be parsed.
MjSpecPtr ParseMjcfText(const std::string& text, const std::string& name);

// Compiles `spec`, which came from `path` (for messages only).
// Throws IoError with MuJoCo's message if the model cannot be built.
MjModelPtr CompileModel(mjSpec& spec, const std::filesystem::path& path);

// Copies a model. Copies of equal models share the memory that they do not
// change (env/model_image.h).
MjModelPtr CopyModel(const mjModel& model);

// The simulation state that belongs to `model`, at the model's defaults.
MjDataPtr MakeData(const mjModel& model);

}  // namespace replicant::env
