"""Daily figures from a weather station's readings."""
