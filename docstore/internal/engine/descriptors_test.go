package engine

import "testing"

func TestHalfOfTheDescriptorsAreLeftToTheProcess(t *testing.T) {
	for limit, want := range map[int]int{
		0: mostTables, -1: mostTables, 20: fewestTables, 80: fewestTables, 256: 104,
		1024: 488, 100_000: mostTables,
	} {
		if got := tablesWithin(limit); got != want {
			t.Errorf("a limit of %d descriptors: %d tables, want %d", limit, got, want)
		}
	}
}
