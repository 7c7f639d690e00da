"""What came of the episodes: results, rates with intervals, first causes."""
