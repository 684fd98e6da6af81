"""Reading the station's CSV files."""

import csv
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Reading:
    """One line of a file: when, and what the sensors said."""

    at: datetime
    celsius: float
    rain_mm: float


def parse(lines):
    """Yield the readings of CSV lines; a sensor that was off leaves an empty field."""
    for row in csv.DictReader(lines):
        if row["celsius"] == "":
            continue
        yield Reading(
            at=datetime.fromisoformat(row["at"]),
            celsius=float(row["celsius"]),
            rain_mm=float(row["rain_mm"] or 0),
        )


def load(path):
    """Return the readings of one file."""
    with open(path, newline="", encoding="utf-8") as lines:
        return list(parse(lines))
