package arg

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

func TestKeysOnTheCommandLine(t *testing.T) {
	for text, want := range map[string]feed.PartitionKey{
		"London": `["London"]`, "5": `["5"]`, "": `[""]`, "a b": `["a b"]`, `{"a":1}`: `["{\"a\":1}"]`,
		"[5]": `[5]`, "[5.0]": `[5]`, `["a", "b"]`: `["a","b"]`, "[null,true]": `[null,true]`, "[{}]": `[{}]`,
		`["<&>"]`: `["<&>"]`,
	} {
		var k Key
		if err := k.Set(text); err != nil || k.Value != want {
			t.Errorf("--key %s: got %s, %v, want %s", text, k.Value, err, want)
		}
	}
	for _, text := range []string{"[", "[]", `[{"a":1}]`, "[[1]]", "[1] 2", "[1,2,3,4]", "\xff"} {
		var k Key
		if err := k.Set(text); err == nil {
			t.Errorf("--key %s: got %s, want an error", text, k.Value)
		}
	}
}

func TestStartsOnTheCommandLine(t *testing.T) {
	at := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]feed.Start{
		"beginning": feed.FromBeginning(), "now": feed.FromNow(),
		"2026-01-31T15:04:05Z": feed.FromTime(at), "2026-01-31T16:04:05+01:00": feed.FromTime(at),
	} {
		var s Start
		if err := s.Set(text); err != nil || s.Value != want {
			t.Errorf("--from %s: got %v, %v, want %v", text, s.Value, err, want)
		}
	}
	var ago Start
	if err := ago.Set("15m"); err != nil || time.Since(ago.Value.Time()) < 15*time.Minute ||
		time.Since(ago.Value.Time()) > 16*time.Minute {
		t.Errorf("--from 15m: got %v, %v, want 15 minutes ago", ago.Value, err)
	}
	if got := new(Start).String(); got != "" {
		t.Errorf("a start that was not given is %q, want no text, which the help would show", got)
	}
	for _, text := range []string{"", "then", "-15m", "0s", "2026-01-31"} {
		if err := new(Start).Set(text); err == nil {
			t.Errorf("--from %s: got no error", text)
		}
	}
}

func TestARangeThatWasNotGivenIsThatOfAllKeys(t *testing.T) {
	var r Range
	if got := r.Value(); got != feed.FullRange() || r.String() != "" {
		t.Errorf("got %v, %q, want all keys and no text", got, r.String())
	}
	if err := r.Set("1F-2F"); err != nil || r.Value() != (feed.Range{Min: "1F", Max: "2F"}) || r.String() != "1F-2F" {
		t.Errorf("got %v, %q, %v", r.Value(), r.String(), err)
	}
	if err := r.Set("2F-1F"); err == nil {
		t.Error("a range that ends before it begins was accepted")
	}
}

func TestModesOnTheCommandLine(t *testing.T) {
	var m Mode
	if m.IsAll() || m.String() != "latest" {
		t.Errorf("the default is %s", m.String())
	}
	for _, word := range m.Words() {
		if err := m.Set(word); err != nil || m.String() != word || m.IsAll() != (word == "all") {
			t.Errorf("--mode %s: got %s, %v", word, m.String(), err)
		}
	}
	if err := m.Set("All"); err == nil || err.Error() != "want latest or all" {
		t.Errorf("got %v", err)
	}
}

func TestTimesToLiveOnTheCommandLine(t *testing.T) {
	for text, want := range map[string]int{"3600": 3600, "1h": 3600, "-1": -1, "90s": 90} {
		var ttl TTL
		if err := ttl.Set(text); err != nil || ttl.Seconds == nil || *ttl.Seconds != want {
			t.Errorf("--ttl %s: got %s, %v, want %d", text, ttl.String(), err, want)
		}
	}
	for _, text := range []string{"", "0", "-2", "1500ms", "soon", "-1s", "-1h"} {
		var ttl TTL
		if err := ttl.Set(text); err == nil || ttl.String() != "off" {
			t.Errorf("--ttl %s: got %s, want an error", text, ttl.String())
		}
	}
}

func TestSizesOnTheCommandLine(t *testing.T) {
	for text, want := range map[string]int64{
		"120MB": 120 << 20, "120 mb": 120 << 20, "96MiB": 96 << 20, "1GB": 1 << 30, "2gib": 2 << 30,
		" 1536MB ": 1536 << 20,
	} {
		var s Size
		if err := s.Set(text); err != nil || s.Value != want {
			t.Errorf("--memory %s: got %d, %v, want %d", text, s.Value, err, want)
		}
		var again Size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%d is written as %s, which is read as %d, %v", s.Value, s.String(), again.Value, err)
		}
	}
	for _, text := range []string{"", "120", "MB", "0MB", "-1MB", "1.5GB", "120M", "120KB", "9999999999GB", "MBMB"} {
		var s Size
		if err := s.Set(text); err == nil || s.Value != 0 {
			t.Errorf("--memory %s: got %d, %v, want an error", text, s.Value, err)
		}
	}
}
