/* As much of ESP-IDF's timer as an example asks for. */
#pragma once

#include <stdint.h>

int64_t esp_timer_get_time(void);
