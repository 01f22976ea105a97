/* The driver on the 16550 of QEMU's board "virt". It serves nobody who did not install and configure it first. */
#include "driver/uart.h"

#define DATA ((volatile uint8_t *)0x10000000)
#define STATUS ((volatile uint8_t *)0x10000005)
enum { CAME = 0x01, MAY_SEND = 0x20, SMALLEST = 128 };

static int installed, configured;

esp_err_t uart_driver_install(uart_port_t port, int rx_size, int tx_size, int queue_size, QueueHandle_t *queue, int flags) {
    installed = port == UART_NUM_0 && rx_size > SMALLEST && (tx_size == 0 || tx_size > SMALLEST);
    return installed ? ESP_OK : ESP_FAIL;
}

esp_err_t uart_param_config(uart_port_t port, const uart_config_t *config) {
    configured = port == UART_NUM_0 && config->baud_rate > 0 && config->data_bits == UART_DATA_8_BITS &&
                 config->parity == UART_PARITY_DISABLE && config->stop_bits == UART_STOP_BITS_1;
    return configured ? ESP_OK : ESP_FAIL;
}

int uart_read_bytes(uart_port_t port, void *data, uint32_t length, TickType_t ticks) {
    if (port != UART_NUM_0 || !installed || !configured || ticks != portMAX_DELAY) return -1;
    for (uint32_t i = 0; i < length; i++) {
        while (!(*STATUS & CAME)) {
        }
        ((uint8_t *)data)[i] = *DATA;
    }
    return (int)length;
}

int uart_write_bytes(uart_port_t port, const void *data, size_t size) {
    if (port != UART_NUM_0 || !installed || !configured) return -1;
    for (size_t i = 0; i < size; i++) {
        while (!(*STATUS & MAY_SEND)) {
        }
        *DATA = ((const uint8_t *)data)[i];
    }
    return (int)size;
}
