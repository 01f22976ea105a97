/* As much of ESP-IDF's UART driver as an example asks for. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define portMAX_DELAY 0xffffffffu
#define UART_NUM_0 0
#define ESP_OK 0
#define ESP_FAIL (-1)

typedef int esp_err_t;
typedef int uart_port_t;
typedef uint32_t TickType_t;
typedef void *QueueHandle_t;

typedef enum { UART_DATA_5_BITS, UART_DATA_6_BITS, UART_DATA_7_BITS, UART_DATA_8_BITS } uart_word_length_t;
typedef enum { UART_PARITY_DISABLE, UART_PARITY_EVEN = 2, UART_PARITY_ODD } uart_parity_t;
typedef enum { UART_STOP_BITS_1 = 1, UART_STOP_BITS_1_5, UART_STOP_BITS_2 } uart_stop_bits_t;
typedef enum { UART_HW_FLOWCTRL_DISABLE } uart_hw_flowcontrol_t;
typedef enum { UART_SCLK_DEFAULT = 4 } uart_sclk_t;

typedef struct {
    int baud_rate;
    uart_word_length_t data_bits;
    uart_parity_t parity;
    uart_stop_bits_t stop_bits;
    uart_hw_flowcontrol_t flow_ctrl;
    uint8_t rx_flow_ctrl_thresh;
    uart_sclk_t source_clk;
} uart_config_t;

esp_err_t uart_driver_install(uart_port_t port, int rx_size, int tx_size, int queue_size, QueueHandle_t *queue, int flags);
esp_err_t uart_param_config(uart_port_t port, const uart_config_t *config);
int uart_read_bytes(uart_port_t port, void *data, uint32_t length, TickType_t ticks);
int uart_write_bytes(uart_port_t port, const void *data, size_t size);
