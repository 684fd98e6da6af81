import unittest

from station.readings import parse

HEADER = "at,celsius,rain_mm"


class ParseTest(unittest.TestCase):
    def test_a_line_is_a_reading(self):
        (reading,) = parse([HEADER, "2025-06-01T06:00,11.5,0.2"])
        self.assertEqual(reading.celsius, 11.5)
        self.assertEqual(reading.rain_mm, 0.2)
        self.assertEqual(reading.at.hour, 6)

    def test_a_line_without_temperature_is_left_out(self):
        self.assertEqual(list(parse([HEADER, "2025-06-01T06:00,,0.2"])), [])

    def test_no_rain_field_is_no_rain(self):
        (reading,) = parse([HEADER, "2025-06-01T06:00,11.5,"])
        self.assertEqual(reading.rain_mm, 0)


if __name__ == "__main__":
    unittest.main()
