"""python3 -m station FILE: one line a day."""

import sys

from station.readings import load
from station.summary import daily


def main(argv):
    if len(argv) != 2:
        print("usage: python3 -m station FILE", file=sys.stderr)
        return 2
    for day in daily(load(argv[1])):
        print(f"{day.date}  {day.low:5.1f} {day.median:5.1f} {day.high:5.1f} °C  {day.rain_mm:5.1f} mm")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
