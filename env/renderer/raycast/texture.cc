#include "env/renderer/raycast/texture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "env/renderer/scene.h"

namespace replicant::env::raycast {
namespace {

uint32_t Channel(uint32_t texel, int channel) {
  return (texel >> (8 * channel)) & 0xFF;
}

// Where texel `i` of a level lies between two texels of the level above.
struct Tap {
  int first;
  int second;
  double weight;  // of `second`
};

Tap TapOf(int i, int from_size, int to_size) {
  const double at = (i + 0.5) * from_size / to_size - 0.5;
  const int first = static_cast<int>(std::floor(at));
  return {std::clamp(first, 0, from_size - 1),
          std::clamp(first + 1, 0, from_size - 1), at - first};
}

uint32_t Blend(const uint32_t* from, int width, const Tap& x, const Tap& y) {
  uint32_t texel = 0;
  for (int channel = 0; channel < 4; ++channel) {
    const auto at = [&](int column, int row) {
      return static_cast<double>(Channel(from[row * width + column], channel));
    };
    const double top = at(x.first, y.first) * (1 - x.weight) +
                       at(x.second, y.first) * x.weight;
    const double bottom = at(x.first, y.second) * (1 - x.weight) +
                          at(x.second, y.second) * x.weight;
    const double value = top * (1 - y.weight) + bottom * y.weight;
    texel |= static_cast<uint32_t>(std::lround(value)) << (8 * channel);
  }
  return texel;
}

// Appends the levels below level 0, which is there.
void MakeMipMaps(Texture& texture) {
  const int num_faces = texture.is_cube ? 6 : 1;
  for (int level = 1; level < Texture::kMaxLevels; ++level) {
    const int from_width = texture.width[level - 1];
    const int from_height = texture.height[level - 1];
    if (from_width == 1 && from_height == 1) break;
    const int width = std::max(1, from_width / 2);
    const int height = std::max(1, from_height / 2);
    texture.width[level] = width;
    texture.height[level] = height;
    texture.offset[level] = static_cast<int32_t>(texture.texels.size());
    texture.texels.resize(texture.texels.size() +
                          static_cast<size_t>(num_faces) * width * height);
    for (int face = 0; face < num_faces; ++face) {
      const uint32_t* from = texture.texels.data() + texture.offset[level - 1] +
                             face * from_width * from_height;
      uint32_t* to =
          texture.texels.data() + texture.offset[level] + face * width * height;
      for (int y = 0; y < height; ++y) {
        const Tap row = TapOf(y, from_height, height);
        for (int x = 0; x < width; ++x) {
          to[y * width + x] =
              Blend(from, from_width, TapOf(x, from_width, width), row);
        }
      }
    }
    texture.num_levels = level + 1;
  }
}

}  // namespace

Texture MakeTexture(const mjModel& model, int id) {
  const int channels = model.tex_nchannel[id];
  if (channels != 3 && channels != 4) {
    throw UnsupportedScene(
        fmt::format("raycast: texture {} has {} channels, 3 or 4 can be drawn",
                    id, channels));
  }
  Texture texture;
  texture.is_cube = model.tex_type[id] != mjTEXTURE_2D;
  texture.is_srgb = model.tex_colorspace[id] == mjCOLORSPACE_SRGB;
  const int width = model.tex_width[id];
  // the six faces of a cube stand one below the other; a square one is used
  // for all of them
  const int height = texture.is_cube ? width : model.tex_height[id];
  const bool is_repeated =
      texture.is_cube && model.tex_height[id] == model.tex_width[id];
  const int num_faces = texture.is_cube ? 6 : 1;
  texture.num_levels = 1;
  texture.width[0] = width;
  texture.height[0] = height;

  const mjtByte* data = model.tex_data + model.tex_adr[id];
  const size_t face_texels = static_cast<size_t>(width) * height;
  texture.texels.resize(face_texels * num_faces);
  for (size_t i = 0; i < texture.texels.size(); ++i) {
    const mjtByte* p = data + (is_repeated ? i % face_texels : i) *
                                  static_cast<size_t>(channels);
    const uint32_t alpha = channels == 4 ? p[3] : 255u;
    texture.texels[i] =
        p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | alpha << 24;
  }
  MakeMipMaps(texture);
  return texture;
}

}  // namespace replicant::env::raycast
