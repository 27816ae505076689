def pipeline_order(rank, stages, micro_batches):
    """Each action at its place of a timetable in which forward i is at 2i, backward 2(stages - rank) - 1 later."""
    late = 2 * (stages - rank) - 1
    at = {f"F{i}": 2 * i for i in range(micro_batches)} | {f"B{i}": 2 * i + late for i in range(micro_batches)}
    return tuple(sorted(at, key=at.get))
