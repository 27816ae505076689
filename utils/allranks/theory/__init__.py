"""What can be said without running anything: traces, schedules, topologies, costs, simulations, races. No torch."""
