"""Planning for the base: lattice A*, shortcutting, arc smoothing, path following, stances."""
