/* As much of Zephyr's kernel as a sample asks for. */
#pragma once

#include <stdint.h>

uint32_t k_cycle_get_32(void);
