// Draws the same poses of tasks or MuJoCo models with both renderers and prints
// how much the pictures differ and how long they take.
#include <fmt/format.h>
#include <png.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "env/camera.h"
#include "env/mujoco.h"
#include "env/task_registry.h"
#include "env/tasks/suite.h"

namespace replicant::env {
namespace {

struct Options {
  std::vector<std::string> names;
  int steps = 10;
  std::string camera = "0";
  int poses = 50;
  int height = 84;
  int width = 84;
  int repeats = 1;
  std::string sheet;
  std::string gl_platform = "auto";
};

// Of all threads. Under a limit of processor time (ulimit -t) Linux advances
// CLOCK_PROCESS_CPUTIME_ID by whole ticks, of 4 ms.
double CpuMilliseconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto milliseconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 +
           static_cast<double>(time.tv_usec) * 1e-3;
  };
  return milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
}

// As dm_control randomises: limited joints over their range, free hinges over
// the circle, balls and free joints over all orientations.
void RandomPose(const mjModel& model, RandomStream& random, mjData& data) {
  constexpr double kPi = 3.14159265358979323846;
  mj_resetData(&model, &data);
  for (int j = 0; j < model.njnt; ++j) {
    double* q = data.qpos + model.jnt_qposadr[j];
    const double* range = model.jnt_range + 2 * j;
    const int type = model.jnt_type[j];
    if (type == mjJNT_FREE || type == mjJNT_BALL) {
      double* quat = type == mjJNT_FREE ? q + 3 : q;
      for (int k = 0; k < 4; ++k) quat[k] = random.Normal();
      mju_normalize4(quat);
    } else if (model.jnt_limited[j] != 0) {
      *q = random.Uniform(range[0], range[1]);
    } else if (type == mjJNT_HINGE) {
      *q = random.Uniform(-kPi, kPi);
    }
  }
  mj_forward(&model, &data);
}

// Totals over the pictures of one model.
struct Score {
  double sum = 0;         // of absolute differences
  double sum_square = 0;  // of squared differences
  int64_t count = 0;
  int64_t far_pixels = 0;  // off by more than 16 in any channel
  int pictures = 0;
  double raycast_ms = 0;
  double gl_ms = 0;

  double mean() const { return sum / static_cast<double>(count); }
  double psnr() const {
    if (sum_square == 0) return std::numeric_limits<double>::infinity();
    return 10 *
           std::log10(255.0 * 255.0 * static_cast<double>(count) / sum_square);
  }
};

using Image = std::vector<uint8_t>;

void Compare(const Image& a, const Image& b, Score& score) {
  for (size_t i = 0; i < a.size(); i += 3) {
    int worst = 0;
    for (size_t c = 0; c < 3; ++c) {
      const int difference = std::abs(int{a[i + c]} - int{b[i + c]});
      score.sum += difference;
      score.sum_square += difference * difference;
      worst = std::max(worst, difference);
    }
    score.far_pixels += worst > 16 ? 1 : 0;
  }
  score.count += static_cast<int64_t>(a.size());
  ++score.pictures;
}

// A grid of pictures, each enlarged.
class ContactSheet {
 public:
  static constexpr int kScale = 3;
  static constexpr int kColumns = 3;  // gl, raycast, difference x 8

  explicit ContactSheet(const Options& options)
      : height_(options.height), width_(options.width) {}

  void AddRow(const Image& gl, const Image& raycast) {
    Image difference(gl.size());
    for (size_t i = 0; i < gl.size(); ++i) {
      const int d = 8 * std::abs(int{gl[i]} - int{raycast[i]});
      difference[i] = static_cast<uint8_t>(std::min(d, 255));
    }
    rows_.push_back({gl, raycast, difference});
  }

  // Throws IoError.
  void Write(const std::string& path) const {
    const int groups = static_cast<int>(rows_.size() + 4) / 5;
    const int columns = kColumns * std::max(1, groups);
    const int lines = std::min<int>(5, static_cast<int>(rows_.size()));
    const auto full_width =
        static_cast<size_t>(columns) * static_cast<size_t>(width_) * kScale;
    const auto full_height =
        static_cast<size_t>(lines) * static_cast<size_t>(height_) * kScale;
    Image sheet(full_width * full_height * 3);
    for (size_t y = 0; y < full_height; ++y) {
      for (size_t x = 0; x < full_width; ++x) {
        const size_t px = x / kScale, py = y / kScale;
        const auto w = static_cast<size_t>(width_);
        const auto h = static_cast<size_t>(height_);
        const size_t column = px / w;
        const size_t row = column / kColumns * 5 + py / h;
        if (row >= rows_.size()) continue;
        const Image& image = rows_[row][column % kColumns];
        for (size_t c = 0; c < 3; ++c) {
          sheet[(y * full_width + x) * 3 + c] =
              image[((py % h) * w + px % w) * 3 + c];
        }
      }
    }
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    png.width = static_cast<png_uint_32>(full_width);
    png.height = static_cast<png_uint_32>(full_height);
    png.format = PNG_FORMAT_RGB;
    if (png_image_write_to_file(&png, path.c_str(), 0, sheet.data(), 0,
                                nullptr) == 0) {
      throw IoError(fmt::format("{}: {}", path, png.message));
    }
  }

 private:
  int height_, width_;
  std::vector<std::array<Image, kColumns>> rows_;
};

// A physics and a way to its next pose.
struct Subject {
  Physics* physics;
  std::function<void()> next_pose;
  // whether a new pose may come with other height fields
  bool changes_assets = false;
};

Score Compare(const Subject& subject, const Options& options,
              ContactSheet& sheet) {
  Physics& physics = *subject.physics;
  CameraOptions camera{.camera = options.camera,
                       .height = options.height,
                       .width = options.width,
                       .renderer = {.kind = RendererKind::kRaycast}};
  Camera raycast(physics, camera);
  camera.renderer = {.kind = RendererKind::kGl,
                     .gl_platform = ParseGlPlatform(options.gl_platform)};
  Camera gl(physics, camera);
  Image gl_image(gl.size_bytes()), raycast_image(gl.size_bytes());
  const auto draw = [&](Camera& from, Image& image, int repeats) {
    const double start = CpuMilliseconds();
    for (int i = 0; i < repeats; ++i) from.Render(physics, image);
    return (CpuMilliseconds() - start) / repeats;
  };

  Score score;
  double worst = -1;
  Image worst_gl, worst_raycast;
  for (int pose = 0; pose < options.poses; ++pose) {
    subject.next_pose();
    if (subject.changes_assets) {
      gl.ReloadAssets(physics);
      raycast.ReloadAssets(physics);
    }
    score.gl_ms += draw(gl, gl_image, 1);
    score.raycast_ms += draw(raycast, raycast_image, options.repeats);
    const double before = score.sum;
    Compare(gl_image, raycast_image, score);
    if (score.sum - before > worst) {
      worst = score.sum - before;
      worst_gl = gl_image;
      worst_raycast = raycast_image;
    }
  }
  sheet.AddRow(worst_gl, worst_raycast);
  return score;
}

// An unchanged model file, in random poses.
Score CompareModel(const std::string& path, const Options& options,
                   ContactSheet& sheet) {
  Physics physics(CompileModel(*ParseMjcf(path), path), path);
  RandomStream random(1, std::filesystem::path(path).stem().string());
  return Compare({.physics = &physics,
                  .next_pose =
                      [&] {
                        RandomPose(physics.model(), random,
                                   physics.mutable_data());
                      }},
                 options, sheet);
}

// A task with its edits; each pose comes from a new episode after a few random
// actions.
Score CompareTask(const TaskDefinition& task, const Options& options,
                  ContactSheet& sheet) {
  const auto environment = MakeEnvironment(task, {.seed = 1});
  RandomStream random(1, "actions");
  const ActionSpec& spec = environment->action_spec();
  std::vector<double> action(spec.minimum.size());
  const auto next_pose = [&] {
    environment->Reset({});
    for (int t = 0; t < options.steps; ++t) {
      DrawAction(spec, random, action);
      environment->Step(action, {});
    }
  };
  return Compare({.physics = &environment->mutable_physics(),
                  .next_pose = next_pose,
                  .changes_assets = environment->ResetChangesAssets()},
                 options, sheet);
}

// Tasks to compare if none is named: all, or the first of each domain.
std::vector<std::string> DefaultNames(const TaskRegistry& registry,
                                      bool one_per_domain) {
  std::vector<std::string> names;
  std::string last;
  for (const TaskDefinition& task : registry.tasks()) {
    const std::string domain = task.name.substr(0, task.name.find('-'));
    if (!one_per_domain || domain != last) names.push_back(task.name);
    last = domain;
  }
  return names;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares the renderers raycast and gl.");
  bool one_per_domain = false;
  app.add_option("names", options.names,
                 "tasks of the suite or MJCF files (.xml); all tasks if none");
  app.add_flag("--domains", one_per_domain,
               "without names: the first task of each domain");
  app.add_option("--steps", options.steps,
                 "random actions from a task's reset to a pose, default 10");
  app.add_option("--camera", options.camera,
                 "name or number, default 0; -1: the free camera");
  app.add_option("--poses", options.poses, "poses of each, default 50");
  app.add_option("--height", options.height, "rows of a picture");
  app.add_option("--width", options.width, "columns of a picture");
  app.add_option("--repeats", options.repeats,
                 "times that raycast draws each pose, for the timing");
  app.add_option("--gl", options.gl_platform,
                 "auto, osmesa, egl or egl-surfaceless");
  app.add_option("--sheet", options.sheet,
                 "PNG file for the worst pose of each: gl, raycast and "
                 "8 x their difference");
  CLI11_PARSE(app, argc, argv);

  const TaskRegistry registry(SuiteTasks());
  if (options.names.empty()) {
    options.names = DefaultNames(registry, one_per_domain);
  }
  fmt::print("{:<26} {:>8} {:>7} {:>9} {:>11} {:>8}\n", "task or model", "mean",
             "PSNR", "far px", "raycast ms", "gl ms");
  ContactSheet sheet(options);
  bool is_complete = true;
  for (const std::string& name : options.names) {
    try {
      const Score score =
          name.ends_with(".xml")
              ? CompareModel(name, options, sheet)
              : CompareTask(registry.Find(name), options, sheet);
      const double n = score.pictures;
      fmt::print("{:<26} {:>8.3f} {:>7.2f} {:>9.1f} {:>11.3f} {:>8.2f}\n", name,
                 score.mean(), score.psnr(),
                 static_cast<double>(score.far_pixels) / n,
                 score.raycast_ms / n, score.gl_ms / n);
    } catch (const Error& e) {
      fmt::print("{:<26} {}\n", name, e.what());
      is_complete = false;
    }
    std::fflush(stdout);
  }
  if (!options.sheet.empty()) sheet.Write(options.sheet);
  return is_complete ? 0 : 1;
}

}  // namespace
}  // namespace replicant::env

int main(int argc, char** argv) {
  try {
    return replicant::env::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "render_compare: {}\n", e.what());
    return 1;
  }
}
