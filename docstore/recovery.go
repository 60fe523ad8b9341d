package docstore

import (
	"fmt"
	"slices"
)

// Recovery describes the state in which [Open] found the newest log of a store that had not been closed. Every
// acknowledged write is present unless the end of that file was lost. After a kill or a power loss nothing shows how
// far the log had reached. If its end was lost, the store is in the state after an earlier write: Heads contains its
// newest LSNs, and the rest of the file is dropped.
type Recovery struct {
	Log     string // name of the newest log; empty if the store had been closed, or is new
	Reached int64  // bytes up to the end of the last complete write
	Dropped int64  // bytes of an incomplete write after them
	Lost    int    // complete writes after the dropped bytes; only in a store with NoSync
	Heads   []Head // an entry per container
}

// Head is the newest write of a container.
type Head struct {
	Container string
	LSN       int64
}

// String returns a summary on a single line for an operator.
func (r Recovery) String() string {
	if r.Log == "" {
		return "the store was closed"
	}
	text := fmt.Sprintf("the store was not closed: %s reaches byte %d", r.Log, r.Reached)
	if r.Dropped > 0 {
		text += fmt.Sprintf(", and %d bytes after it hold a write that is not whole, which is dropped", r.Dropped)
	}
	if r.Lost > 0 {
		text += fmt.Sprintf(", and %d whole writes after a gap are dropped too", r.Lost)
	}
	for i, h := range r.Heads {
		if i == maxHeads {
			return text + fmt.Sprintf(" and %d more", len(r.Heads)-i)
		}
		text += fmt.Sprintf("%s %s %d", []string{"; newest LSNs:", ","}[min(i, 1)], h.Container, h.LSN)
	}
	return text
}

// maxHeads is the largest number of containers in that summary.
const maxHeads = 10

// Recovery returns the state in which [Open] found the newest log.
func (db *DB) Recovery() Recovery {
	found := db.found
	found.Heads = slices.Clone(found.Heads)
	return found
}

// start reads the data that the store keeps in memory.
func (db *DB) start() error {
	err := loader{db}.readAll()
	if err != nil {
		return err
	}
	end := db.eng.NewestLog()
	db.found = Recovery{Log: end.Log, Reached: end.Reached, Dropped: end.Dropped, Lost: end.Lost}
	if end.Log != "" {
		for _, c := range db.Containers() {
			db.found.Heads = append(db.found.Heads, Head{Container: c.Name(), LSN: c.Head()})
		}
	}
	return nil
}
