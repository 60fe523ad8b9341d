//go:build race

package docstore_test

const raceEnabled = true
