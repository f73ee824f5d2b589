#include "ops/reference/backend.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace fathom::reference {

bool ReferenceBackend::supports(DType type) const {
  return is_weight_type(type) && type != DType::kEngramRow264 && type != DType::kEngramRow136;
}

// Vectors that come and go with each operation; a definition has no need to be frugal, and nobody plans with it.
int64_t ReferenceBackend::working_bytes(const WorkShape&) const { return 0; }
Result<void> ReferenceBackend::reserve(const WorkShape&) { return {}; }
void* ReferenceBackend::allocate(size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
void ReferenceBackend::release(void* memory) { std::free(memory); }
void ReferenceBackend::upload(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);  // both may be null then
}
void ReferenceBackend::download(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);  // both may be null then
}

float dot(const float* a, const float* b, int64_t count) {
  float total = 0;
  for (int64_t begin = 0; begin < count; begin += 32) {
    const int64_t end = begin + 32 < count ? begin + 32 : count;
    float block = 0;
    for (int64_t k = begin; k < end; ++k) block += a[k] * b[k];
    total += block;
  }
  return total;
}

float orderable(float x) { return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x; }

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace fathom::reference
