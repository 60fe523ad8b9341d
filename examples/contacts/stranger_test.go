package main

import (
	"testing"
)

func TestStrangerJournalAfterRestart(t *testing.T) {
	j := newJournal() // of a new process
	for i := range 10 {
		j.add(received{Order: int64(i + 1)})
	}
	// A page had five events of the process before, lost its connection, and comes back with Last-Event-ID 5.
	events, _ := j.after(5)
	if len(events) != 10 {
		t.Errorf("the page gets %d events of the new process, want all 10: it never saw any of them", len(events))
	}
}
