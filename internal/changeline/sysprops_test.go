package changeline

import (
	"encoding/json"
	"testing"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

var documents = []struct{ stored, given string }{
	{`{"id":"1","_rid":"r","_self":"s","_etag":"\"e\"","_attachments":"attachments/","_ts":1}`, `{"id":"1"}`},
	{`{"_ts":1, "id" : "1" , "n": 12345678901234567890, "_lsn":5}`, `{"id" : "1" , "n": 12345678901234567890}`},
	{
		`{"id":"1","in":{"_rid":"kept","_ts":2},"list":["_ts"]}`,
		`{"id":"1","in":{"_rid":"kept","_ts":2},"list":["_ts"]}`,
	},
	{`{"a":1,"a":2,"\u005fts":3}`, `{"a":1,"a":2}`},
	{`{"_ts":1}`, `{}`},
	{`{}`, `{}`},
}

func TestSystemPropertiesAreLeftOut(t *testing.T) {
	for _, tt := range documents {
		if got, err := WithoutSystem([]byte(tt.stored)); err != nil || string(got) != tt.given {
			t.Errorf("%s: got %s, %v, want %s", tt.stored, got, err, tt.given)
		}
	}
	for _, bad := range []string{"", "{", "[]", `[{"_ts":1}]`, "7", "null", `{"a"`, `{"a":}`, `{"a":1`} {
		if got, err := WithoutSystem([]byte(bad)); err == nil {
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
		got, err := WithoutSystem(body)
		var left map[string]json.RawMessage
		if err != nil || json.Unmarshal(got, &left) != nil {
			t.Fatalf("%s: got %s, %v, want an object", body, got, err)
		}
		for name, value := range members {
			if _, kept := left[name]; kept == service.IsSystem(name) || kept && string(left[name]) != string(value) {
				t.Errorf("%s: got %s: member %q is wrong", body, got, name)
			}
		}
	})
}
