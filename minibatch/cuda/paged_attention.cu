#include "kernels/launch.h"
