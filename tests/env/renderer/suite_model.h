#pragma once

#include <mujoco/mujoco.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fs.h"
#include "env/mujoco.h"
#include "env/renderer/renderer.h"

namespace replicant::env {

// The folder of dm_control's models.
inline std::filesystem::path SuiteFolder() { return REPLICANT_SUITE; }

// A Control Suite model as its file has it, without the task's edits, or the
// model of another file.
struct SuiteModel {
  explicit SuiteModel(const std::string& domain)
      : SuiteModel(SuiteFolder() / (domain + ".xml")) {}
  explicit SuiteModel(const char* domain) : SuiteModel(std::string(domain)) {}
  explicit SuiteModel(const std::filesystem::path& path) {
    const MjSpecPtr spec = ParseMjcf(path);
    model = CompileModel(*spec, path);
    data = MakeData(*model);
    SetPose(0);
  }

  // Default position moved by small multiples of 1/64; render_oracle.py knows
  // the same poses.
  void SetPose(int pose) {
    for (int i = 0; i < model->nq; ++i) {
      data->qpos[i] = model->qpos0[i] + ((7 * i + 3 * pose) % 11 - 5) / 64.0;
    }
    mj_forward(model.get(), data.get());
  }

  MjModelPtr model;
  MjDataPtr data;
};

using Picture = std::vector<uint8_t>;

inline Picture Draw(Renderer& renderer, SuiteModel& model, int camera,
                    int height = 84, int width = 84) {
  Picture rgb(size_t{3} * static_cast<size_t>(height) *
              static_cast<size_t>(width));
  renderer.Render(*model.model, *model.data, camera, height, width, rgb);
  return rgb;
}

inline double MeanDifference(const Picture& a, const Picture& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

// Peak signal-to-noise ratio, dB.
inline double Psnr(const Picture& a, const Picture& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / sum);
}

// A user's model in a separate file.
inline SuiteModel ModelOf(const std::string& mjcf) {
  const TemporaryFolder folder("model");
  const auto path = folder.path() / "model.xml";
  AtomicWriteFile(path, mjcf);
  return SuiteModel(path);
}

}  // namespace replicant::env
