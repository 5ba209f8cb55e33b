// Where it lies in TensorFlow 2.18.
#pragma once

#include "xla/client/xla_builder.h"
