"""Programs in the style of public repositories, in our own words; each takes the library as `T`."""
