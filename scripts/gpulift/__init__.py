"""What each training technique is worth on this machine's GPU: records, statistics, reports."""
