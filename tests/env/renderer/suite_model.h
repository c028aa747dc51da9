#pragma once

#include <mujoco/mujoco.h>

#include <filesystem>
#include <string>

#include "env/mujoco.h"

namespace replicant::env {

// The folder of dm_control's models.
inline std::filesystem::path SuiteFolder() { return REPLICANT_SUITE; }

// A Control Suite model as its file has it, without the task's edits.
struct SuiteModel {
  explicit SuiteModel(const std::string& domain) {
    const auto path = SuiteFolder() / (domain + ".xml");
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

}  // namespace replicant::env
