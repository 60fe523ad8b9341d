package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// entry is what a program writes down of one change, or that its batch is done.
type entry struct {
	Instance string    `json:"instance"`
	Lease    string    `json:"lease"`
	Batch    string    `json:"batch"`
	Key      string    `json:"key,omitempty"`
	N        int       `json:"n,omitempty"`
	LSN      int64     `json:"lsn,omitempty"`
	At       time.Time `json:"at"`
	Done     bool      `json:"done,omitempty"`
}

// recordBatch is a program for run: it appends the changes of a batch to a file that all
// share, and then that the batch is done.
func recordBatch() {
	if err := writeDown(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func writeDown(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	e := entry{
		Instance: os.Getenv("CHANGEFEED_INSTANCE"), Lease: os.Getenv("CHANGEFEED_LEASE"),
		Batch: strconv.Itoa(os.Getpid()) + "/" + strconv.FormatInt(time.Now().UnixNano(), 10),
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var change struct {
			LSN      int64
			Document struct {
				Key string
				N   int
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
			return err
		}
		e.Key, e.N, e.LSN, e.At = change.Document.Key, change.Document.N, change.LSN, time.Now()
		if err := json.NewEncoder(f).Encode(e); err != nil {
			return err
		}
	}
	e.Key, e.N, e.LSN, e.At, e.Done = "", 0, 0, time.Now(), true
	return json.NewEncoder(f).Encode(e)
}

// judge looks at what programs wrote down, in the order in which they did, and tells
// what is wrong. Numbers of a key count from 1 to the last one sold, which is what at
// least once and in order allow to look at:
//
//   - each number is in a batch that was done;
//   - before a number come all smaller ones, in batches that are done or in its own;
//   - a number that was done is done again only after a victim: an instance that was
//     killed, stopped, or knows that it lost a lease, and so could not store its
//     position. What another instance has done stays done: if it comes again, then by
//     somebody who worked without a lease. That may be the batch that the stopped one,
//     if any, had in hand: nobody can take it from its program. One of each lease may be.
func judge(entries []entry, sold map[string]int, victims map[string]bool, stopped string) (wrong []string) {
	type order struct {
		key string
		n   int
	}
	doneBy := map[order]string{}
	open := map[string][]entry{}  // by batch
	inHand := map[string]string{} // the batch that the stopped one had in hand, by lease
	for _, e := range entries {
		if e.Done {
			for _, c := range open[e.Batch] {
				if o := (order{c.Key, c.N}); doneBy[o] == "" || victims[doneBy[o]] {
					doneBy[o] = c.Instance
				}
			}
			continue
		}
		batch := open[e.Batch]
		before := order{e.Key, e.N - 1}
		inBatch := false
		for _, c := range batch {
			inBatch = inBatch || order{c.Key, c.N} == before
		}
		if doneBy[before] == "" && !inBatch && e.N > 1 {
			wrong = append(wrong, fmt.Sprintf("%s of %s by %s: %d comes before %d is done", e.Key, e.Lease, e.Instance,
				e.N, e.N-1))
		}
		if len(batch) > 0 && batch[len(batch)-1].LSN > e.LSN {
			wrong = append(wrong, fmt.Sprintf("batch of %s by %s: LSN %d comes after a newer one", e.Lease, e.Instance,
				e.LSN))
		}
		by := doneBy[order{e.Key, e.N}]
		again := by != "" && !victims[by]
		if again && e.Instance == stopped && inHand[e.Lease] == "" {
			inHand[e.Lease] = e.Batch
		}
		if again && inHand[e.Lease] != e.Batch {
			wrong = append(wrong, fmt.Sprintf("%s of %s by %s: %d comes again, which %s has done and kept", e.Key,
				e.Lease, e.Instance, e.N, by))
		}
		open[e.Batch] = append(batch, e)
	}
	for key, last := range sold {
		for n := 1; n <= last; n++ {
			if doneBy[order{key, n}] == "" {
				wrong = append(wrong, fmt.Sprintf("%s: %d of %d is lost", key, n, last))
			}
		}
	}
	return wrong
}

func TestTheJudgeSeesWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, log, want string }{
		{"all well", "a1:1 a1:2 a1 b2:3 b2", ""},
		{"lost", "a1:1 a1", "3 is lost"},
		{"lost with its batch", "a1:1 a1 b2:2 b2:3", "2 of 3 is lost"},
		{"skipped", "a1:1 a1 b2:3 b2 c3:2 c3", "3 comes before 2 is done"},
		{"ahead of an unfinished batch", "a1:1 b2:2 a1 b2 b3:3 b3", "2 comes before 1 is done"},
		{"again after a victim", "v1:1 v1:2 v1 b2:1 b2:2 b2:3 b2", ""},
		{"unfinished, and again", "b1:1 b1:2 a2:1 a2:2 a2:3 a2", ""},
		{"a victim that goes on", "v1:1 v1 b2:1 b2:2 b2:3 b2 v3:2 v3", "2 comes again, which b has done and kept"},
		{"the batch in hand of a stopped one", "s1:1 s1 b2:1 b2:2 b2:3 b2 s3:2 s3:3 s3", ""},
		{
			"a stopped one that goes on", "s1:1 s1 b2:1 b2:2 b2:3 b2 s3:2 s3 s4:3 s4",
			"3 comes again, which b has done and kept",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var entries []entry
			for i, word := range strings.Fields(tt.log) {
				batch, n, isChange := strings.Cut(word, ":")
				e := entry{Instance: batch[:1], Batch: batch, Lease: "-FF", LSN: int64(i), Done: !isChange}
				if isChange {
					e.Key = "k"
					e.N, _ = strconv.Atoi(n)
				}
				entries = append(entries, e)
			}
			got := strings.Join(judge(entries, map[string]int{"k": 3}, map[string]bool{"v": true, "s": true}, "s"),
				"; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
