// The compiled part of Boost.Asio, so that no other file has to.
#include "server/http/asio.h"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
