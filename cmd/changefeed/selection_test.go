package main

import (
	"encoding/json"
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

var documents = []struct{ stored, given string }{
	{`{"id":"1","_rid":"r","_self":"s","_etag":"\"e\"","_attachments":"attachments/","_ts":1}`, `{"id":"1"}`},
	{`{"_ts":1, "id" : "1" , "n": 12345678901234567890, "_lsn":5}`, `{"id" : "1","n": 12345678901234567890}`},
	{`{"id":"1","in":{"_rid":"kept","_ts":2},"list":["_ts"]}`, `{"id":"1","in":{"_rid":"kept","_ts":2},"list":["_ts"]}`},
	{`{"a":1,"a":2,"\u005fts":3}`, `{"a":1,"a":2}`},
	{`{"_ts":1}`, `{}`},
	{`{}`, `{}`},
}

func TestSystemPropertiesAreLeftOut(t *testing.T) {
	for _, tt := range documents {
		if got, err := withoutSystem([]byte(tt.stored)); err != nil || string(got) != tt.given {
			t.Errorf("%s: got %s, %v, want %s", tt.stored, got, err, tt.given)
		}
	}
	for _, bad := range []string{"", "{", `{"a"`, `{"a":}`, `{"a":1`} {
		if got, err := withoutSystem([]byte(bad)); err == nil {
			t.Errorf("%s: got %s, want an error", bad, got)
		}
	}
}

func FuzzWithoutSystem(f *testing.F) {
	for _, tt := range documents {
		f.Add([]byte(tt.stored))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil || members == nil {
			return
		}
		got, err := withoutSystem(body)
		var left map[string]json.RawMessage
		if err != nil || json.Unmarshal(got, &left) != nil {
			t.Fatalf("%s: got %s, %v, want an object", body, got, err)
		}
		for name, value := range members {
			if _, kept := left[name]; kept == isSystem(name) || kept && string(left[name]) != string(value) {
				t.Errorf("%s: got %s: member %q is wrong", body, got, name)
			}
		}
	})
}
