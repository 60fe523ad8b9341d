package main

import (
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/terminal"
)

func TestARangeOfATableIsCompleted(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}, Ranges: 4})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		var r rangeFlag
		if err := r.Set(terminal.Short(p.Range.String())); err != nil {
			t.Fatal(err)
		}
		if err := r.complete(t.Context(), c); err != nil || r.value != p.Range {
			t.Errorf("got %v of %s, %v, want %v", r.value, r.cut, err, p.Range)
		}
	}
	r := rangeFlag{cut: "1ABCDEF0…-FF"}
	if err := r.complete(t.Context(), c); err == nil {
		t.Error("a range that no partition has was accepted")
	}
}

func TestKeysOnTheCommandLine(t *testing.T) {
	for text, want := range map[string]changefeed.PartitionKey{
		"London": `["London"]`, "5": `["5"]`, "": `[""]`, "a b": `["a b"]`, `{"a":1}`: `["{\"a\":1}"]`,
		"[5]": `[5]`, "[5.0]": `[5]`, `["a", "b"]`: `["a","b"]`, "[null,true]": `[null,true]`, "[{}]": `[{}]`, `["<&>"]`: `["<&>"]`,
	} {
		var k keyFlag
		if err := k.Set(text); err != nil || k.value != want {
			t.Errorf("--key %s: got %s, %v, want %s", text, k.value, err, want)
		}
	}
	for _, text := range []string{"[", "[]", `[{"a":1}]`, "[[1]]", "[1] 2"} {
		var k keyFlag
		if err := k.Set(text); err == nil {
			t.Errorf("--key %s: got %s, want an error", text, k.value)
		}
	}
}

func TestStartsOnTheCommandLine(t *testing.T) {
	at := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]changefeed.Start{
		"beginning": changefeed.FromBeginning(), "now": changefeed.FromNow(),
		"2026-01-31T15:04:05Z": changefeed.FromTime(at), "2026-01-31T16:04:05+01:00": changefeed.FromTime(at),
	} {
		var s startFlag
		if err := s.Set(text); err != nil || s.value != want {
			t.Errorf("--from %s: got %v, %v, want %v", text, s.value, err, want)
		}
	}
	var ago startFlag
	if err := ago.Set("15m"); err != nil || time.Since(ago.value.Time()) < 15*time.Minute || time.Since(ago.value.Time()) > 16*time.Minute {
		t.Errorf("--from 15m: got %v, %v, want 15 minutes ago", ago.value, err)
	}
	for _, text := range []string{"", "then", "-15m", "0s", "2026-01-31"} {
		if err := new(startFlag).Set(text); err == nil {
			t.Errorf("--from %s: got no error", text)
		}
	}
}
