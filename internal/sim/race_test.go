//go:build race

package sim

// seedsByDefault are fewer with the race detector, which makes each ten times slower.
const seedsByDefault = 10
