#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace replicant::env::raycast {

// A texture with its mip maps, as in OpenGL: level 0 is the model's; level k +
// 1 has half the sides of level k (rounded down, at least 1) down to 1 x 1,
// each filtered from the level before by two by two texels and rounded to 8
// bits.
//
// A texel is one uint32: red in bits 0-7, green 8-15, blue 16-23. Texels of 2D
// textures are marked where blends need not be computed. Bit 24, kEven, is set
// if the texel, the next one in its row and the two below them all have the
// same colour, so that any blend of the four has it too. Bit 25, kEvenBelow, is
// set if texels of the next level, blended at places between these four, all
// have it as well. Beyond an edge a 2D texture continues at its opposite side.
// Level k starts at `offset[k]`; a 2D texture has one image per level, row 0
// first; a cube texture six: +x, -x, +y, -y, +z, -z. A face of a cube has a
// border of one texel with the texels of its neighbours, which Mesa blends at
// edges (OpenGL 4.6, "Seamless Cube Map Filtering"); at a corner it is the mean
// of the three texels that meet there.
struct Texture {
  static constexpr int kMaxLevels = 16;
  static constexpr uint32_t kColor = 0x00FFFFFF;
  static constexpr uint32_t kEven = 0x01000000;
  static constexpr uint32_t kEvenBelow = 0x02000000;

  bool is_cube = false;
  // texels are stored in sRGB and blended as linear light
  bool is_srgb = false;
  // the alpha of the texels, in each channel; null if OpenGL takes all of them
  // for opaque
  std::shared_ptr<const Texture> alpha;
  int num_levels = 0;
  std::array<int32_t, kMaxLevels> width{};
  std::array<int32_t, kMaxLevels> height{};
  // in texels, of the whole level
  std::array<int32_t, kMaxLevels> offset{};
  std::vector<uint32_t> texels;

  int num_images() const { return is_cube ? 6 : 1; }
  int border() const { return is_cube ? 1 : 0; }
  // Texels from a row to the next one.
  int32_t stride(size_t level) const { return width[level] + 2 * border(); }
  // Texels from an image of a level to the next one.
  int32_t image_size(size_t level) const {
    return stride(level) * (height[level] + 2 * border());
  }
  // Place of the first texel of an image, inside the border.
  int32_t start(size_t level, int image) const {
    return offset[level] + image * image_size(level) +
           border() * (stride(level) + 1);
  }
  // OpenGL draws as if there were no texture.
  bool is_missing() const { return num_levels == 0; }
};

// Channels in sRGB as linear light, 0 to 255.
extern const std::array<float, 256> kLinearOfSrgb;

// Reads texture `id` of `model` and builds its mip maps. A texture that is not
// RGB or RGBA is missing, as MuJoCo does not hand it to OpenGL.
Texture MakeTexture(const mjModel& model, int id);

// Whether `texture`, made from texture `id` of `model` or of a copy of it,
// still has its texels.
bool IsTextureOf(const Texture& texture, const mjModel& model, int id);

}  // namespace replicant::env::raycast
