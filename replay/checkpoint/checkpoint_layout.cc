#include "replay/checkpoint/checkpoint_layout.h"

#include <fmt/format.h>

#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::replay {
namespace {

std::filesystem::path LayoutPath(const std::filesystem::path& folder) {
  return folder / "layout.yaml";
}

std::string ToText(const StepShape& shape) {
  return fmt::format("observation_bytes {}, action_bytes {} and frame_bytes {}",
                     shape.observation_bytes, shape.action_bytes,
                     shape.frame_bytes);
}

}  // namespace

CheckpointLayout CheckpointLayout::Read(config::Reader& reader) {
  CheckpointLayout c;
  reader.Field("observation_bytes", &c.shape.observation_bytes, {0, INT64_MAX},
               "bytes of an observation without its pixels");
  reader.Field("action_bytes", &c.shape.action_bytes, {0, INT64_MAX},
               "bytes of an action");
  reader.Field("frame_bytes", &c.shape.frame_bytes, {0, INT64_MAX},
               "bytes of a frame; 0 without pixels");
  reader.Field("durability", &c.durability,
               {{"checkpoint", Durability::kCheckpoint},
                {"journal", Durability::kJournal}},
               "whether the segments hold a journal");
  return c;
}

std::optional<CheckpointLayout> ReadLayout(
    const std::filesystem::path& folder) {
  const std::filesystem::path path = LayoutPath(folder);
  if (!std::filesystem::exists(path)) return std::nullopt;
  return config::Load<CheckpointLayout>(
             config::Document::FromText(path.string(), ReadFile(path)))
      .config;
}

void WriteLayout(const std::filesystem::path& folder,
                 const CheckpointLayout& layout) {
  const StepShape& shape = layout.shape;
  AtomicWriteFile(
      LayoutPath(folder),
      fmt::format("# what the files of this folder were written with\n"
                  "observation_bytes: {}\naction_bytes: {}\nframe_bytes: {}\n"
                  "durability: {}\n",
                  shape.observation_bytes, shape.action_bytes,
                  shape.frame_bytes,
                  layout.durability == Durability::kJournal ? "journal"
                                                            : "checkpoint"));
}

void CheckSameShape(const std::filesystem::path& folder,
                    const CheckpointLayout& layout, const StepShape& shape) {
  if (layout.shape == shape) return;
  throw InvalidArgument(
      fmt::format("{}: its steps have {}, the configuration has {}; hint: "
                  "configure the sizes that the folder has, or start afresh "
                  "with another checkpoint_folder",
                  folder.string(), ToText(layout.shape), ToText(shape)));
}

}  // namespace replicant::replay
