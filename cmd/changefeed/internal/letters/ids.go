package letters

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The ID of a letter contains its LSN and a hash of 32 digits, which is too long for people. A table shows the first
// digits of the hash. On a command line you may use any beginning of an ID that only a single letter has, with at least
// leastHash digits of the hash.

const (
	hashSize  = 32 // digits of the hash in an ID
	shortHash = 8  // digits of the hash in a table, if they identify its letters
	// digits of the hash on a command line: fewer could be the index of a change in the IDs of other units
	leastHash = 4
)

// hashOf returns the hash in an ID. The IDs of units that read all versions and deletes have no hash, and are never
// cut.
func hashOf(id string) (hash string, ok bool) {
	_, hash, _ = strings.Cut(id, ".")
	return hash, len(hash) == hashSize
}

// shortIDs returns the short form of each ID for a table.
func shortIDs(ids []string) map[string]string {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	short := make(map[string]string, len(sorted))
	for i, id := range sorted {
		hash, ok := hashOf(id)
		if !ok {
			short[id] = id
			continue
		}
		lsn := len(id) - len(hash)
		size := lsn + shortHash
		// its neighbours have the longest common beginning
		for _, next := range sorted[max(i-1, 0):min(i+2, len(sorted))] {
			if next != id {
				size = max(size, shared(id, next)+1)
			}
		}
		short[id] = id[:min(size, len(id))]
	}
	return short
}

// shared returns the length of the common beginning of two texts.
func shared(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// means reports whether an argument is an ID or its beginning.
func means(argument, id string) bool {
	hash, ok := hashOf(id)
	return argument == id || ok && strings.HasPrefix(id, argument) && len(argument) >= len(id)-len(hash)+leastHash
}

// finds records which IDs the arguments of a command line mean.
type finds map[string][]string

// noteLetter records the ID of a letter, and reports whether an argument means this letter.
func (f finds) noteLetter(arguments []string, id string) (meant bool) {
	for _, argument := range arguments {
		if !means(argument, id) {
			continue
		}
		meant = true
		if known := f[argument]; len(known) < 2 && !slices.Contains(known, id) {
			f[argument] = append(known, id)
		}
	}
	return meant
}

// checkArgument refuses an argument that means no letter of the unit, or several letters.
func (f finds) checkArgument(arguments []string, unit string) error {
	for _, argument := range arguments {
		switch found := f[argument]; len(found) {
		case 0:
			return usage.Missing{Err: fmt.Errorf("ID is %s: unit %q has no such letter here: want one that changefeed "+
				"dlq list shows, or its beginning with at least %d digits of the hash", argument, unit, leastHash)}
		case 1:
		default:
			return usage.Error{Err: fmt.Errorf("ID is %s: several letters begin so, among them %s and %s: want "+
				"more of it", argument, found[0], found[1])}
		}
	}
	return nil
}
