def fit_line(points):
    """The two sums that must vanish, by hand."""
    a = sum(1 / t**2 for n, t in points)
    b = sum(n / t**2 for n, t in points)
    c = sum(n * n / t**2 for n, t in points)
    d, e = sum(1 / t for n, t in points), sum(n / t for n, t in points)
    return (c * d - b * e) / (a * c - b * b), (a * e - b * d) / (a * c - b * b)
