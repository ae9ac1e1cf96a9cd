"""The report: tables and figures made from records."""
