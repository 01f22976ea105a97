/* As much of Zephyr's devices as a sample asks for: there is one, which the devicetree chose as the console. */
#pragma once

struct device {
    int in, out;
};

extern struct device console_device;

#define DT_CHOSEN(node) node
#define DEVICE_DT_GET(node) DEVICE_NAMED(node)
#define DEVICE_NAMED(node) (&DEVICE_OF_##node)
#define DEVICE_OF_zephyr_console console_device
