// Boost.JSON as one translation unit, for builds that have only its headers.
#include <boost/json/src.hpp>
