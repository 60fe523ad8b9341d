package place

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

func TestAStoreIsADirectoryOrAServer(t *testing.T) {
	for text, want := range map[string]Address{
		"data": {Dir: "data", Field: "DIR"}, "docstore:data": {Dir: "data", Field: "DIR"},
		"http://127.0.0.1:8081/": {endpoint: "http://127.0.0.1:8081", Field: "ADDRESS"},
	} {
		want.Given = text
		if got, err := parseStore(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "docstore:", "cosmos:shop/orders", "ftp://h", "http://h/shop/orders", "http://h?x=1", "http://me@h",
		"http://",
	} {
		if a, err := parseStore(text); !errors.As(err, new(usage.Error)) {
			t.Errorf("%q: %+v, %v, want an error of usage", text, a, err)
		}
	}
}

// A check that was cut off, or could not be done, is no check without violations.
func TestACheckIsReadToItsEnd(t *testing.T) {
	const begun = `{"records":5}` + "\n"
	for answer, want := range map[string]string{
		begun + `{"records":7,"done":true}`:                "",
		begun + `{"records":7,"done":true,"error":"disk"}`: "disk",
		begun:                        errEnded.Error(),
		begun + `{"records":7,"don`:  errEnded.Error(),
		begun + `<html>`:             "read answer of server",
		begun + `{"violations":[{}]`: errEnded.Error(),
	} {
		records := int64(0)
		found, err := readCheck(strings.NewReader(answer), func(c Checked) { records = c.Records })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(found) != 0 ||
			records < 5 {
			t.Errorf("%s: %v, %v after %d records, want %q", answer, found, err, records, want)
		}
	}
	found, err := readCheck(strings.NewReader(begun+`{"done":true,"violations":[{"container":"orders"}]}`),
		func(Checked) {})
	if err != nil || len(found) != 1 || found[0].Container != "orders" {
		t.Errorf("%v, %v, want the violation", found, err)
	}
}
