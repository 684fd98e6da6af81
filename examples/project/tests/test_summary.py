import pathlib
import unittest

from station.readings import load
from station.summary import daily, median

DATA = pathlib.Path(__file__).parent.parent / "data"


class MedianTest(unittest.TestCase):
    def test_of_an_odd_count_is_the_middle(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_of_an_even_count_is_the_mean_of_the_middle_two(self):
        self.assertEqual(median([4, 1, 2, 3]), 2.5)

    def test_of_nothing_is_an_error(self):
        with self.assertRaises(ValueError):
            median([])


class DailyTest(unittest.TestCase):
    def test_of_a_month_has_every_day_once(self):
        days = daily(load(DATA / "june.csv"))
        self.assertEqual(len(days), 30)
        self.assertEqual(days[0].date, "2025-06-01")
        self.assertTrue(all(d.low <= d.median <= d.high for d in days))


if __name__ == "__main__":
    unittest.main()
