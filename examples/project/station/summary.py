"""Figures over readings."""

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class Day:
    """The figures of one day."""

    date: str
    low: float
    median: float
    high: float
    rain_mm: float


def median(values):
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median of nothing")
    return ordered[len(ordered) // 2]


def daily(readings):
    """Return a Day for each date that has readings, in order."""
    by_date = defaultdict(list)
    for reading in readings:
        by_date[reading.at.date().isoformat()].append(reading)
    return [_day(date, of_day) for date, of_day in sorted(by_date.items())]


def _day(date, readings):
    celsius = [r.celsius for r in readings]
    return Day(
        date=date,
        low=min(celsius),
        median=median(celsius),
        high=max(celsius),
        rain_mm=round(sum(r.rain_mm for r in readings), 1),
    )
