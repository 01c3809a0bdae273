"""The dashboard: web pages that show every job's story, and settle the doubt."""
