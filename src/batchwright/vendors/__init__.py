"""Who answers rows: protocols, the vendors' own peculiarities as dated data, the local model, the simulator."""
