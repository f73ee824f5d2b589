#include "server/web_assets.h"

namespace fathom {

std::span<const WebAsset> web_assets() { return {}; }

}  // namespace fathom
