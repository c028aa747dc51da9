#include "env/renderer/raycast/texture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

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

// The sRGB channel of linear light, both from 0 to 255 (IEC 61966-2-1).
double ToSrgb(double linear) {
  const double v = linear / 255;
  return 255 *
         (v <= 0.0031308 ? 12.92 * v : 1.055 * std::pow(v, 1 / 2.4) - 0.055);
}

uint32_t Blend(const uint32_t* from, int stride, bool is_srgb, const Tap& x,
               const Tap& y) {
  uint32_t texel = 0;
  for (int channel = 0; channel < 3; ++channel) {
    const auto at = [&](int column, int row) {
      const uint32_t value = Channel(from[row * stride + column], channel);
      return is_srgb ? double{kLinearOfSrgb[value]}
                     : static_cast<double>(value);
    };
    const double top = at(x.first, y.first) * (1 - x.weight) +
                       at(x.second, y.first) * x.weight;
    const double bottom = at(x.first, y.second) * (1 - x.weight) +
                          at(x.second, y.second) * x.weight;
    double value = top * (1 - y.weight) + bottom * y.weight;
    if (is_srgb) value = ToSrgb(value);
    texel |= static_cast<uint32_t>(std::lround(value)) << (8 * channel);
  }
  return texel;
}

// The mean of four texels as Mesa makes it: of two texels side by side, rounded
// half up, and then of both rows; all channels at once.
uint32_t Mean(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  // without a carry from channel to channel: x + y = 2 (x | y) - (x ^ y)
  const auto mean = [](uint32_t x, uint32_t y) {
    return (x | y) - ((x ^ y) >> 1 & 0x7F7F7F7F);
  };
  return mean(mean(a, b), mean(c, d));
}

// Makes room for the images of a level of this size.
void AddLevel(Texture& texture, int width, int height) {
  const auto level = static_cast<size_t>(texture.num_levels++);
  texture.width[level] = width;
  texture.height[level] = height;
  texture.offset[level] = static_cast<int32_t>(texture.texels.size());
  texture.texels.resize(texture.texels.size() +
                        static_cast<size_t>(texture.num_images()) *
                            static_cast<size_t>(texture.image_size(level)));
}

// The mean of three texels.
uint32_t MeanOfThree(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t texel = 0;
  for (int channel = 0; channel < 3; ++channel) {
    const uint32_t sum =
        Channel(a, channel) + Channel(b, channel) + Channel(c, channel);
    texel |= (sum + 1) / 3 << (8 * channel);
  }
  return texel;
}

// Appends the levels below level 0, which exists.
void MakeMipMaps(Texture& texture) {
  for (size_t level = 1; level < Texture::kMaxLevels; ++level) {
    const int from_width = texture.width[level - 1];
    const int from_height = texture.height[level - 1];
    if (from_width == 1 && from_height == 1) break;
    const int width = std::max(1, from_width / 2);
    const int height = std::max(1, from_height / 2);
    AddLevel(texture, width, height);
    const int from_stride = texture.stride(level - 1);
    const int stride = texture.stride(level);
    for (int image = 0; image < texture.num_images(); ++image) {
      const uint32_t* from =
          texture.texels.data() + texture.start(level - 1, image);
      uint32_t* to = texture.texels.data() + texture.start(level, image);
      // most textures have even sides most of the way
      if (!texture.is_srgb && from_width % 2 == 0 && from_height % 2 == 0) {
        for (int y = 0; y < height; ++y) {
          const uint32_t* row = from + 2 * y * from_stride;
          const uint32_t* below = row + from_stride;
          for (int x = 0; x < width; ++x) {
            to[y * stride + x] = Mean(row[2 * x], row[2 * x + 1], below[2 * x],
                                      below[2 * x + 1]);
          }
        }
        continue;
      }
      for (int y = 0; y < height; ++y) {
        const Tap row = TapOf(y, from_height, height);
        for (int x = 0; x < width; ++x) {
          to[y * stride + x] = Blend(from, from_stride, texture.is_srgb,
                                     TapOf(x, from_width, width), row);
        }
      }
    }
  }
}

// A face's own axes (table 3.21 of the OpenGL 2.1 specification): which axis of
// the cube s and t run along and the face stands on, and which way.
struct FaceAxis {
  size_t axis;
  int sign;
};
struct FaceAxes {
  FaceAxis s, t, out;
};
constexpr std::array<FaceAxes, 6> kFaces = {{{{2, -1}, {1, -1}, {0, 1}},
                                             {{2, 1}, {1, -1}, {0, -1}},
                                             {{0, 1}, {2, 1}, {1, 1}},
                                             {{0, 1}, {2, -1}, {1, -1}},
                                             {{0, 1}, {1, -1}, {2, 1}},
                                             {{0, -1}, {1, -1}, {2, -1}}}};

// Place of the texel next to an edge of a face, on the face beyond it. (x, y)
// lies one texel outside the face.
int32_t PlaceBeyond(const Texture& texture, size_t level, size_t face, int x,
                    int y) {
  const int width = texture.width[level];
  // texels lie at odd or even numbers between -width and width
  const auto middle = [&](int i) { return 2 * i + 1 - width; };
  const auto clamped = [&](int v) { return std::clamp(v, -width, width); };
  const FaceAxes& from = kFaces[face];
  std::array<int, 3> at{};
  at[from.s.axis] = from.s.sign * clamped(middle(x));
  at[from.t.axis] = from.t.sign * clamped(middle(y));
  at[from.out.axis] = from.out.sign * (width - 1);
  for (size_t to = 0; to < kFaces.size(); ++to) {
    const FaceAxes& axes = kFaces[to];
    if (at[axes.out.axis] != axes.out.sign * width) continue;
    const auto index = [&](const FaceAxis& a) {
      return (a.sign * at[a.axis] + width - 1) / 2;
    };
    return texture.start(level, static_cast<int>(to)) +
           index(axes.t) * texture.stride(level) + index(axes.s);
  }
  return 0;
}

// Fills the borders of a cube's faces.
void MakeBorders(Texture& texture) {
  for (size_t level = 0; level < static_cast<size_t>(texture.num_levels);
       ++level) {
    const int width = texture.width[level];
    for (size_t face = 0; face < kFaces.size(); ++face) {
      uint32_t* first =
          texture.texels.data() + texture.start(level, static_cast<int>(face));
      const auto texel = [&](int x, int y) -> uint32_t& {
        return first[y * texture.stride(level) + x];
      };
      for (int i = 0; i < width; ++i) {
        for (const auto& [x, y] : {std::pair{-1, i}, std::pair{width, i},
                                   std::pair{i, -1}, std::pair{i, width}}) {
          texel(x, y) =
              texture.texels.data()[PlaceBeyond(texture, level, face, x, y)];
        }
      }
      for (const int x : {-1, width}) {
        for (const int y : {-1, width}) {
          const int inside_x = std::clamp(x, 0, width - 1);
          const int inside_y = std::clamp(y, 0, width - 1);
          texel(x, y) = MeanOfThree(texel(inside_x, inside_y),
                                    texel(x, inside_y), texel(inside_x, y));
        }
      }
    }
  }
}

// The texels of the next level, of `to_size`, that are blended at places
// between texel i and the next one of a level of `from_size`: `count` of them
// from `first` on.
struct TexelRange {
  int first, count;
};
TexelRange RangeBelow(int i, int from_size, int to_size) {
  const auto place = [&](int texel) {
    return (texel + 0.5) * to_size / from_size - 0.5;
  };
  // wider than the places' rounding in single precision
  const double margin = 1e-3 + 1e-6 * from_size;
  const auto first = static_cast<int>(std::floor(place(i) - margin));
  const auto last = static_cast<int>(std::floor(place(i + 1) + margin)) + 1;
  return {first, last - first + 1};
}

// Sets kEven in one image.
void MarkEven(std::span<uint32_t> image, int width, int height) {
  const auto at = [&](int x, int y) -> uint32_t& {
    return image[static_cast<size_t>(y) * static_cast<size_t>(width) +
                 static_cast<size_t>(x)];
  };
  const auto color = [&](int x, int y) { return at(x, y) & Texture::kColor; };
  for (int y = 0; y < height; ++y) {
    const int below = (y + 1) % height;
    for (int x = 0; x < width; ++x) {
      const int right = (x + 1) % width;
      const uint32_t own = color(x, y);
      if (color(right, y) == own && color(x, below) == own &&
          color(right, below) == own) {
        at(x, y) |= Texture::kEven;
      }
    }
  }
}

// Sets kEvenBelow in the image of `level`.
void MarkEvenBelow(Texture& texture, size_t level) {
  const int width = texture.width[level];
  const int to_width = texture.width[level + 1];
  const int to_height = texture.height[level + 1];
  uint32_t* image = texture.texels.data() + texture.offset[level];
  const uint32_t* to = texture.texels.data() + texture.offset[level + 1];
  const auto inside = [](int i, int size) {
    return ((i % size) + size) % size;
  };
  for (int y = 0; y < texture.height[level]; ++y) {
    const TexelRange rows = RangeBelow(y, texture.height[level], to_height);
    for (int x = 0; x < width; ++x) {
      uint32_t& texel = image[y * width + x];
      if ((texel & Texture::kEven) == 0) continue;
      const TexelRange columns = RangeBelow(x, width, to_width);
      bool is_even = true;
      for (int r = 0; r < rows.count; ++r) {
        const uint32_t* row = to + inside(rows.first + r, to_height) * to_width;
        for (int c = 0; c < columns.count; ++c) {
          is_even &= ((row[inside(columns.first + c, to_width)] ^ texel) &
                      Texture::kColor) == 0;
        }
      }
      if (is_even) texel |= Texture::kEvenBelow;
    }
  }
}

// Marks the texels of a 2D texture.
void MarkTexels(Texture& texture) {
  const auto num_levels = static_cast<size_t>(texture.num_levels);
  for (size_t level = 0; level < num_levels; ++level) {
    const int width = texture.width[level];
    const int height = texture.height[level];
    MarkEven({texture.texels.data() + texture.offset[level],
              static_cast<size_t>(width) * static_cast<size_t>(height)},
             width, height);
    if (level + 1 < num_levels) MarkEvenBelow(texture, level);
  }
}

// Calls `visit(texel, i)` for each texel of level 0; `i` counts them without
// borders.
template <typename TextureType, typename Visit>
void ForEachTexel(TextureType& texture, const Visit& visit) {
  size_t i = 0;
  for (int image = 0; image < texture.num_images(); ++image) {
    for (int y = 0; y < texture.height[0]; ++y) {
      auto* row = texture.texels.data() + texture.start(0, image) +
                  y * texture.stride(0);
      for (int x = 0; x < texture.width[0]; ++x) visit(row[x], i++);
    }
  }
}

// Texel `i` of level 0 of texture `id`.
class Source {
 public:
  Source(const mjModel& model, int id)
      : data_(model.tex_data + model.tex_adr[id]),
        size_(static_cast<size_t>(model.tex_width[id]) *
              static_cast<size_t>(model.tex_height[id])),
        channels_(static_cast<size_t>(model.tex_nchannel[id])),
        // the six faces of a cube stand one below the other; a square one is
        // used for all of them
        period_(model.tex_type[id] != mjTEXTURE_2D &&
                        model.tex_height[id] == model.tex_width[id]
                    ? static_cast<size_t>(model.tex_width[id]) *
                          static_cast<size_t>(model.tex_width[id])
                    : SIZE_MAX) {}

  uint32_t operator()(size_t i) const {
    const mjtByte* p = data_ + (i < period_ ? i : i % period_) * channels_;
    return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16;
  }

  // As far as MuJoCo's alpha test in the passes of lights with shadow. MuJoCo
  // hands over the colours alone of a square texture of a cube.
  bool IsOpaque() const {
    if (channels_ != 4 || period_ != SIZE_MAX) return true;
    for (size_t i = 0; i < size_; ++i) {
      if (data_[4 * i + 3] < 252) return false;
    }
    return true;
  }
  // In each channel of a texel; of a texture that is not opaque.
  uint32_t Alpha(size_t i) const { return data_[4 * i + 3] * 0x010101u; }

 private:
  const mjtByte* data_;
  size_t size_;
  size_t channels_;
  size_t period_;
};

// Adds the mip maps, and marks or borders, to level 0.
void Finish(Texture& texture) {
  MakeMipMaps(texture);
  if (texture.is_cube) {
    MakeBorders(texture);
  } else {
    MarkTexels(texture);
  }
}

// The alpha of a texture of which level 0 is given; null if it is opaque.
std::shared_ptr<const Texture> MakeAlpha(const Source& source,
                                         const Texture& texture) {
  if (source.IsOpaque()) return nullptr;
  Texture alpha = texture;
  alpha.is_srgb = false;
  ForEachTexel(alpha,
               [&](uint32_t& texel, size_t i) { texel = source.Alpha(i); });
  Finish(alpha);
  return std::make_shared<const Texture>(std::move(alpha));
}

}  // namespace

const std::array<float, 256> kLinearOfSrgb = [] {
  std::array<float, 256> linear{};
  for (size_t i = 0; i < linear.size(); ++i) {
    const double v = static_cast<double>(i) / 255;
    linear[i] = static_cast<float>(
        255 * (v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4)));
  }
  return linear;
}();

bool IsTextureOf(const Texture& texture, const mjModel& model, int id) {
  const Source source(model, id);
  bool is_same = (texture.alpha == nullptr) == source.IsOpaque();
  ForEachTexel(texture, [&](uint32_t texel, size_t i) {
    is_same &= (texel & Texture::kColor) == source(i);
  });
  if (texture.alpha != nullptr && is_same) {
    ForEachTexel(*texture.alpha, [&](uint32_t texel, size_t i) {
      is_same &= (texel & Texture::kColor) == source.Alpha(i);
    });
  }
  return is_same;
}

Texture MakeTexture(const mjModel& model, int id) {
  Texture texture;
  const int channels = model.tex_nchannel[id];
  if (channels != 3 && channels != 4) return texture;
  texture.is_cube = model.tex_type[id] != mjTEXTURE_2D;
  // MuJoCo hands cubes over as they are
  texture.is_srgb =
      !texture.is_cube && model.tex_colorspace[id] == mjCOLORSPACE_SRGB;
  const int width = model.tex_width[id];
  const int height = texture.is_cube ? width : model.tex_height[id];
  AddLevel(texture, width, height);

  const Source source(model, id);
  ForEachTexel(texture, [&](uint32_t& texel, size_t i) { texel = source(i); });
  texture.alpha = MakeAlpha(source, texture);
  Finish(texture);
  return texture;
}

}  // namespace replicant::env::raycast
