"""Reading records: files, lines, fields, and what they hold."""
