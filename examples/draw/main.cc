// Draws a MuJoCo model, seen by its free camera, without OpenGL.
#include <mujoco/mujoco.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "env/renderer/renderer.h"

int main(int argc, char** argv) {
  char error[1000] = "usage: draw MODEL.xml PICTURE.ppm";
  mjModel* model =
      argc == 3 ? mj_loadXML(argv[1], nullptr, error, sizeof(error)) : nullptr;
  if (model == nullptr) return std::fprintf(stderr, "%s\n", error), 2;
  mjData* data = mj_makeData(model);
  mj_forward(model, data);

  constexpr int kHeight = 240, kWidth = 320;
  std::vector<uint8_t> rgb(size_t{3} * kHeight * kWidth);
  const auto renderer = replicant::env::MakeRenderer(*model, {});
  renderer->Render(*model, *data, /*camera=*/-1, kHeight, kWidth, rgb);

  std::ofstream file(argv[2], std::ios::binary);
  file << "P6 " << kWidth << ' ' << kHeight << " 255\n";
  file.write(reinterpret_cast<const char*>(rgb.data()), std::ssize(rgb));
  mj_deleteData(data);
  mj_deleteModel(model);
  return file.flush() ? 0 : 1;
}
