// Textures, filtered as llvmpipe does. Included once per instruction set.
#include "env/renderer/raycast/lighting-inl.h"

#if defined(REPLICANT_RAYCAST_SAMPLING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SAMPLING_INL_H_
#undef REPLICANT_RAYCAST_SAMPLING_INL_H_
#else
#define REPLICANT_RAYCAST_SAMPLING_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// The two mip map levels that are blended.
struct MipLevels {
  Int level;
  // share of level + 1; none where <= 0
  Float share;
};

// `rho2` is the square of the largest distance in texels of level 0 between
// neighbouring pixels. llvmpipe takes the level (e + m - 1) / 2 for rho2 = 2^e
// m, which is nearly log2(rho), and blends the two levels about it.
HWY_INLINE MipLevels ChooseLevels(const Texture& texture, Float rho2) {
  Float exponent, mantissa;
  SplitFloat(hn::Max(rho2, Set(1e-12f)), &exponent, &mantissa);
  const Float level = (exponent + mantissa - Set(1.0f)) * Set(0.5f);
  const Float last = Set(static_cast<float>(texture.num_levels - 1));
  const Float whole = hn::Floor(level);
  // no blending beyond the existing levels
  const Mask is_blended = hn::And(whole >= Zero(), whole < last);
  return {ToInt(hn::Min(hn::Max(whole, Zero()), last)),
          If(is_blended, level - whole, Set(-1.0f))};
}

HWY_INLINE Color UnpackTexel(const Texture& texture, Int texel) {
  const Int mask = hn::Set(kInt, 0xFF);
  const Int r = hn::And(texel, mask);
  const Int g = hn::And(hn::ShiftRight<8>(texel), mask);
  const Int b = hn::And(hn::ShiftRight<16>(texel), mask);
  if (!texture.is_srgb) return {ToFloat(r), ToFloat(g), ToFloat(b)};
  const float* linear = kLinearOfSrgb.data();
  return {Gather(linear, r), Gather(linear, g), Gather(linear, b)};
}

HWY_INLINE Color FetchTexel(const Texture& texture, Int index) {
  return UnpackTexel(
      texture,
      hn::GatherIndex(kInt,
                      reinterpret_cast<const int32_t*>(texture.texels.data()),
                      index));
}

HWY_INLINE Color Lerp(Color a, Color b, Float share) {
  return Fma(b - a, share, a);
}

// The image that a lane reads: of a level and, for cubes, a face.
struct Image {
  Int start;   // place of its first texel
  Int stride;  // texels from a row to the next one
  Float width, height;
};
HWY_INLINE Image FindImage(const Texture& texture, Int level, Int face) {
  Image image;
  Int width, height;
  // neighbouring pixels mostly read the same level
  if (int32_t shared = 0; IsUniform(level, &shared)) {
    const auto i = static_cast<size_t>(shared);
    width = hn::Set(kInt, texture.width[i]);
    height = hn::Set(kInt, texture.height[i]);
    image.start = hn::Set(kInt, texture.offset[i]);
  } else {
    width = hn::GatherIndex(kInt, texture.width.data(), level);
    height = hn::GatherIndex(kInt, texture.height.data(), level);
    image.start = hn::GatherIndex(kInt, texture.offset.data(), level);
  }
  image.stride = width;
  if (texture.is_cube) {
    const Int two = hn::Set(kInt, 2);
    image.stride = width + two;
    image.start = image.start + face * image.stride * (height + two) +
                  image.stride + hn::Set(kInt, 1);
  }
  image.width = ToFloat(width);
  image.height = ToFloat(height);
  return image;
}

// Blends four texels about (s, t), coordinates in [0, 1] over the image; a flat
// texture repeats outside, a face of a cube has its border there.
HWY_INLINE Color Bilinear(const Texture& texture, Int level, Int face, Float s,
                          Float t) {
  const Image image = FindImage(texture, level, face);
  const Float one = Set(1.0f);
  const Float x = Fma(s, image.width, Set(-0.5f));
  const Float y = Fma(t, image.height, Set(-0.5f));
  Float x0 = hn::Floor(x);
  Float y0 = hn::Floor(y);
  const Float fx = x - x0;
  const Float fy = y - y0;
  Float x1 = x0 + one;
  Float y1 = y0 + one;
  const Float last_x = image.width - one;
  const Float last_y = image.height - one;
  if (texture.is_cube) {
    // whatever rounding makes of s and t
    x0 = hn::Min(hn::Max(x0, Zero() - one), last_x);
    y0 = hn::Min(hn::Max(y0, Zero() - one), last_y);
    x1 = x0 + one;
    y1 = y0 + one;
  } else {
    // s and t lie in [0, 1): at most one texel beyond an edge
    x0 = If(x0 < Zero(), last_x, x0);
    y0 = If(y0 < Zero(), last_y, y0);
    x1 = If(x1 > last_x, Zero(), x1);
    y1 = If(y1 > last_y, Zero(), y1);
  }
  const Int left = ToInt(x0);
  const Int right = ToInt(x1);
  const Int top = image.start + ToInt(y0) * image.stride;
  const Int bottom = image.start + ToInt(y1) * image.stride;
  const Color upper = Lerp(FetchTexel(texture, top + left),
                           FetchTexel(texture, top + right), fx);
  const Color lower = Lerp(FetchTexel(texture, bottom + left),
                           FetchTexel(texture, bottom + right), fx);
  return Lerp(upper, lower, fy);
}

// Blends `fine`, of the finer level, with the coarser one, where there is one;
// colours in [0, 1] of [0, 255].
HWY_INLINE Color BlendLevels(const Texture& texture, const MipLevels& mip,
                             Int face, Float s, Float t, Color fine) {
  const Mask is_blended = mip.share > Zero();
  if (!hn::AllFalse(kFloat, is_blended)) {
    const Int next = If(is_blended, mip.level + hn::Set(kInt, 1), mip.level);
    const Color coarse = Bilinear(texture, next, face, s, t);
    fine = If(is_blended, Lerp(fine, coarse, mip.share), fine);
  }
  return fine * Set(1.0f / 255.0f);
}

HWY_INLINE Color Filtered(const Texture& texture, const MipLevels& mip,
                          Int face, Float s, Float t) {
  return BlendLevels(texture, mip, face, s, t,
                     Bilinear(texture, mip.level, face, s, t));
}

// Position in a flat texture: coordinates in [0, 1) and levels.
struct FlatPlace {
  Float s, t;
  MipLevels mip;
};

// The position for coordinates (s, t) that change by (sx, tx) and (sy, ty) from
// pixel to pixel.
HWY_INLINE FlatPlace FindFlatPlace(const Texture& texture, Float s, Float t,
                                   Float sx, Float tx, Float sy, Float ty) {
  const Float width = Set(static_cast<float>(texture.width[0]));
  const Float height = Set(static_cast<float>(texture.height[0]));
  const auto square = [&](Float ds, Float dt) HWY_ATTR {
    const Float x = ds * width;
    const Float y = dt * height;
    return Fma(y, y, x * x);
  };
  const Float rho2 = hn::Max(square(sx, tx), square(sy, ty));
  return {s - hn::Floor(s), t - hn::Floor(t), ChooseLevels(texture, rho2)};
}

// The first of the four texels that Bilinear() blends in a flat texture.
HWY_INLINE Int FirstTexel(const Texture& texture, Int level,
                          const FlatPlace& at) {
  const Image image = FindImage(texture, level, hn::Zero(kInt));
  const auto first = [](Float place, Float size) HWY_ATTR {
    const Float i = hn::Floor(Fma(place, size, Set(-0.5f)));
    return ToInt(If(i < Zero(), size - Set(1.0f), i));
  };
  const Int index = image.start + first(at.t, image.height) * image.stride +
                    first(at.s, image.width);
  return hn::GatherIndex(
      kInt, reinterpret_cast<const int32_t*>(texture.texels.data()), index);
}

// What the finer level's first texel at a place tells.
struct EvenTexels {
  // in [0, 1] where it is known; else of the finer level, in [0, 255]
  Color color;
  Mask is_known;       // all texels are equal, on both levels
  Mask is_fine_known;  // on the finer level
};

HWY_INLINE EvenTexels ReadEvenTexels(const Texture& texture,
                                     const FlatPlace& at) {
  const Int texel = FirstTexel(texture, at.mip.level, at);
  const auto has = [&](uint32_t mark) HWY_ATTR {
    const Int bits = hn::Set(kInt, static_cast<int32_t>(mark));
    return hn::RebindMask(kFloat, hn::Gt(hn::And(texel, bits), hn::Zero(kInt)));
  };
  const Mask is_even = has(Texture::kEven);
  const Mask is_known = hn::And(
      is_even, hn::Or(has(Texture::kEvenBelow), at.mip.share <= Zero()));
  const Color color = UnpackTexel(texture, texel);
  return {If(is_known, color * Set(1.0f / 255.0f), color), is_known, is_even};
}

// The face's own axes of a direction: s and t axis and major axis, signed as
// in table 3.21 of the OpenGL 2.1 specification.
HWY_INLINE Vec3 CubeAxes(Vec3 d, Mask is_x, Mask is_y, Mask is_negative) {
  const Float s_x = If(is_negative, d.z, Zero() - d.z);
  const Float s_z = If(is_negative, Zero() - d.x, d.x);
  const Float t_y = If(is_negative, Zero() - d.z, d.z);
  const Float major = If(is_x, d.x, If(is_y, d.y, d.z));
  return {If(is_x, s_x, If(is_y, d.x, s_z)), If(is_y, t_y, Zero() - d.y),
          If(is_negative, Zero() - major, major)};
}

// Colour of a cube texture in direction `d`, which changes by `dx` and `dy`
// from pixel to pixel.
HWY_INLINE Color SampleCube(const Texture& texture, Vec3 d, Vec3 dx, Vec3 dy) {
  const Float ax = hn::Abs(d.x);
  const Float ay = hn::Abs(d.y);
  const Float az = hn::Abs(d.z);
  const Mask is_x = hn::And(ax >= ay, ax >= az);
  const Mask is_y = hn::AndNot(is_x, ay >= az);
  const Mask is_negative = If(is_x, d.x, If(is_y, d.y, d.z)) < Zero();
  const Int axis =
      If(is_x, hn::Zero(kInt), If(is_y, hn::Set(kInt, 2), hn::Set(kInt, 4)));
  const Int face = axis + If(is_negative, hn::Set(kInt, 1), hn::Zero(kInt));

  const Vec3 a = CubeAxes(d, is_x, is_y, is_negative);
  const Float inverse = Set(1.0f) / hn::Max(a.z, Set(1e-20f));
  const Float s = a.x * inverse;
  const Float t = a.y * inverse;
  // quotient rule: (a.x / a.z)' = (a.x' - s a.z') / a.z
  const auto move = [&](Vec3 step) HWY_ATTR {
    const Vec3 v = CubeAxes(step, is_x, is_y, is_negative);
    const Float ds = (v.x - s * v.z) * inverse;
    const Float dt = (v.y - t * v.z) * inverse;
    return Fma(dt, dt, ds * ds);
  };
  const float half_width = 0.5f * static_cast<float>(texture.width[0]);
  const Float rho2 = hn::Max(move(dx), move(dy)) * Set(half_width * half_width);
  return Filtered(texture, ChooseLevels(texture, rho2), face,
                  s * Set(0.5f) + Set(0.5f), t * Set(0.5f) + Set(0.5f));
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
