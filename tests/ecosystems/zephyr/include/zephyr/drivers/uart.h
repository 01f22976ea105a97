/* As much of Zephyr's serial lines as a sample asks for. */
#pragma once

#include <zephyr/device.h>

int uart_poll_in(const struct device *dev, unsigned char *p_char);
void uart_poll_out(const struct device *dev, unsigned char out_char);
