/* As much of Arduino's interface as a sketch with a serial line asks for; the line is an emulator's. */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stddef.h>
#include <stdint.h>

void setup();
void loop();
unsigned long micros();

class Line {
  public:
    void begin(unsigned long baud);
    int available();
    int read();
    size_t write(const uint8_t *data, size_t size);
};

extern Line Serial;

#endif
