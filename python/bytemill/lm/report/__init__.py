"""The report card of a run: text, JSON, one HTML page. No torch."""
