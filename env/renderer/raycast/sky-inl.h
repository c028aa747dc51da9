// The sky, painted where it is seen. Included once per instruction set.
#include <algorithm>
#include <array>

#include "env/renderer/raycast/band-inl.h"
#include "env/renderer/raycast/sampling-inl.h"

#if defined(REPLICANT_RAYCAST_SKY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SKY_INL_H_
#undef REPLICANT_RAYCAST_SKY_INL_H_
#else
#define REPLICANT_RAYCAST_SKY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Copies the background to kLargestVector pixels from (x, y) on, at `place`.
inline HWY_ATTR void CopyBackground(const Snapshot& snapshot, int x, int y,
                                    size_t place, Sky& sky) {
  const auto width = static_cast<size_t>(snapshot.width);
  const auto column = static_cast<size_t>(x);
  const size_t first = static_cast<size_t>(y) * width + column;
  const uint8_t* rgb = snapshot.background + 3 * first;
  // the last pixels of the picture have no whole vector after them
  std::array<uint8_t, 3 * kLargestVector> last{};
  const size_t left = width * static_cast<size_t>(snapshot.height) - first;
  if (left < kLargestVector) {
    std::copy_n(rgb, 3 * left, last.data());
    rgb = last.data();
  }
  auto* color = reinterpret_cast<int32_t*>(sky.color.data()) + place;
  const hn::Rebind<uint8_t, IntTag> bytes;
  for (size_t i = 0; i < kLargestVector; i += NumLanes()) {
    hn::Vec<decltype(bytes)> r, g, b;
    hn::LoadInterleaved3(bytes, rgb + 3 * i, r, g, b);
    const auto channel = [](auto v) HWY_ATTR { return hn::PromoteTo(kInt, v); };
    const Int blue = hn::ShiftLeft<2 * kChannelBits>(channel(b));
    hn::StoreU(channel(r) + hn::ShiftLeft<kChannelBits>(channel(g)) + blue,
               kInt, color + i);
  }
}

// Paints the sky in kLargestVector pixels from (x, y) on, at `place`.
inline HWY_ATTR void PaintSky(const Snapshot& snapshot, int x, int y,
                              size_t place, Sky& sky) {
  const Rays& rays = snapshot.rays;
  // MuJoCo turns the cube by 90 degrees about x
  const auto turned = [](Vec3 d) HWY_ATTR {
    return Vec3{d.x, d.z, Zero() - d.y};
  };
  const Vec3 row =
      Fma(Set(rays.per_y), Set(static_cast<float>(y) + 0.5f), Set(rays.base));
  for (size_t i = 0; i < kLargestVector; i += NumLanes()) {
    const Float column = ToFloat(CountFrom(x + static_cast<int>(i)));
    Vec3 direction = Fma(Set(rays.per_x), column + Set(0.5f), row);
    Int painted = hn::Zero(kInt);
    if (snapshot.sky != nullptr) {
      Float depth = Zero();
      if (rays.are_parallel) {
        depth = ParallelSkyDepth(snapshot, direction);
        direction = Fma(Set(rays.forward), depth, direction);
      } else if (snapshot.fog.is_on) {
        depth = LeaveSky(snapshot, {Zero(), Zero(), Zero()}, direction);
      }
      Color color =
          SampleCube(*snapshot.sky, turned(direction), turned(Set(rays.per_x)),
                     turned(Set(rays.per_y)));
      if (snapshot.fog.is_on) color = Fogged(snapshot.fog, depth, false, color);
      painted = Pack(ToBytes(color));
      if (rays.are_parallel) {
        painted =
            hn::IfThenElseZero(hn::RebindMask(kInt, depth > Zero()), painted);
      }
    }
    hn::StoreU(painted, kInt,
               reinterpret_cast<int32_t*>(sky.color.data()) + place + i);
  }
}

// The sky's colours of a vector of pixels from (x, y) on, at `place`.
HWY_INLINE Int SkyAt(const Snapshot& snapshot, int x, int y, size_t place,
                     Sky& sky) {
  constexpr auto kStep = static_cast<int>(kLargestVector);
  uint8_t& is_painted = sky.is_painted[place / kLargestVector];
  if (is_painted == 0) {
    const int begin = x - x % kStep;
    const size_t begin_place = place - place % kLargestVector;
    if (snapshot.background == nullptr) {
      PaintSky(snapshot, begin, y, begin_place, sky);
    } else {
      CopyBackground(snapshot, begin, y, begin_place, sky);
    }
    is_painted = 1;
  }
  return hn::LoadU(kInt,
                   reinterpret_cast<const int32_t*>(sky.color.data()) + place);
}

// Starts a band of the picture with the sky, in the samples without a
// primitive. `has_primitives`: what is seen directly is known; otherwise it is
// the sky alone.
inline HWY_ATTR void PutSky(const Snapshot& snapshot, const Band& band,
                            bool has_primitives, Frame& frame, Sky& sky) {
  const bool keeps_samples = snapshot.keeps_samples();
  const Int nothing = hn::Set(kInt, -1);
  for (int y = band.y0; y < band.y1; ++y) {
    const size_t row = static_cast<size_t>(y) * frame.stride;
    for (int x = 0; x < snapshot.width; x += static_cast<int>(NumLanes())) {
      // how many samples of each pixel see the sky
      Int count = hn::Set(kInt, kNumSamples);
      if (has_primitives) {
        count = hn::Zero(kInt);
        const size_t at = band.Place(frame, x, y);
        for (const Lanes<int32_t>& id : frame.direct.id) {
          count = count -
                  hn::VecFromMask(
                      kInt, hn::Eq(hn::LoadU(kInt, id.data() + at), nothing));
        }
      }
      const size_t place = row + static_cast<size_t>(x);
      auto* sum = reinterpret_cast<int32_t*>(frame.sum.data()) + place;
      if (hn::AllTrue(kInt, hn::Eq(count, hn::Zero(kInt)))) {
        hn::StoreU(count, kInt, sum);
        continue;
      }
      const Int color = SkyAt(snapshot, x, y, place, sky);
      hn::StoreU(color * count, kInt, sum);
      if (!keeps_samples) continue;
      for (Lanes<uint32_t>& kept : frame.color) {
        hn::StoreU(color, kInt,
                   reinterpret_cast<int32_t*>(kept.data()) + place);
      }
    }
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
