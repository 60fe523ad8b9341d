//go:build !race

package sim

const seedsByDefault = 40
