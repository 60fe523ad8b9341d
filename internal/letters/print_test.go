package letters

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
)

// until are letters and then, unless it is nil, an error.
func until(failed error, letters ...changefeed.DeadLetter) Seq {
	return func(yield func(changefeed.DeadLetter, error) bool) {
		for _, l := range letters {
			if !yield(l, nil) {
				return
			}
		}
		if failed != nil {
			yield(changefeed.DeadLetter{}, failed)
		}
	}
}

// What was read before an error is shown: it may be all that the operator gets.
func TestATableHasTheLettersBeforeAnError(t *testing.T) {
	l := letter("12.0", "London", 12, changefeed.DispositionFailed)
	const table = "  ID    KEY         ITEM        LEASE  DISPOSITION  ATTEMPTS  PARKED                CAUSE\n" +
		"  12.0  [\"London\"]  order-12.0  -1F    failed       5         2026-01-02T03:05:05Z  no such [31maddress\n"
	var b strings.Builder
	if err := WriteTable(&b, "mailer", "letters", until(nil, l)); err != nil || b.String() != "mailer in letters: 1 dead letter of 1 key\n"+table {
		t.Errorf("got %v, and\n%s", err, b.String())
	}
	b.Reset()
	failed := errors.New("failed")
	if err := WriteTable(&b, "mailer", "letters", until(failed, l)); !errors.Is(err, failed) || b.String() != table {
		t.Errorf("got %v, and\n%s", err, b.String())
	}
}

func TestProgramsGetALetterALine(t *testing.T) {
	l := letter("12.0", "London", 12, changefeed.DispositionFailed)
	var b strings.Builder
	if err := WriteList(&b, until(nil, l, l)); err != nil || strings.Count(b.String(), "\n") != 2 || strings.Contains(b.String(), "document") {
		t.Errorf("list: %v, and\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteWhole(&b, "mailer", until(nil, l)); err != nil || !json.Valid([]byte(b.String())) || !strings.Contains(b.String(), `"document":{"id":"order-12.0"}`) {
		t.Errorf("whole: %v, and\n%s", err, b.String())
	}
	failed := errors.New("failed")
	if err := errors.Join(WriteList(&b, until(failed)), WriteWhole(&b, "mailer", until(failed)), Show(&b, until(failed))); strings.Count(err.Error(), "failed") != 3 {
		t.Errorf("got %v, want the error of each", err)
	}
}

func TestPeopleGetAllThatIsKnownOfALetter(t *testing.T) {
	l := letter("12.0", "London", 12, changefeed.DispositionFailed)
	l.Change.Previous, l.Stack = json.RawMessage("\xffno JSON"), "goroutine 1\n\tmain.go:1\n"
	var b strings.Builder
	if err := Show(&b, until(nil, l)); err != nil {
		t.Fatal(err)
	}
	const want = `12.0 of ["London"]
  disposition  failed
  cause        no such �[31maddress
  attempts     5
  change       upsert of item order-12.0, LSN 12, committed 2026-01-02T03:04:05Z
  etag         "0f"
  lease        -1F, range -1F
  instance     one
  failed       2026-01-02T03:04:05Z
  parked       2026-01-02T03:05:05Z
  stack
    goroutine 1
    	main.go:1
  document
    {
      "id": "order-12.0"
    }
  previous     "\xffno JSON"
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestWhatBecameOfLettersIsAnErrorIfSomeAreLeft(t *testing.T) {
	retried := []Retried{{ID: "1.0", Key: json.RawMessage(`["a"]`), Handled: true}, {ID: "2.0", Key: json.RawMessage(`["b"]`), Cause: "no\nsuch"}}
	released := []Released{{json.RawMessage(`["a"]`), true}, {json.RawMessage(`["b"]`), false}}
	for _, tt := range []struct {
		name      string
		write     func(b *strings.Builder) error
		want, err string
	}{
		{
			"retried", func(b *strings.Builder) error { return WriteRetried(b, "text", retried) },
			"1.0 of [\"a\"] is handled\n2.0 of [\"b\"] has failed again: no such\n", "1 of 2 letters have failed again",
		},
		{"retried, json", func(b *strings.Builder) error { return WriteRetried(b, "json", retried[:1]) }, `{"id":"1.0","key":["a"],"handled":true}` + "\n", ""},
		{
			"released", func(b *strings.Builder) error { return WriteReleased(b, "text", released) },
			"[\"a\"] is released\n[\"b\"] is held still: a change of it has failed\n", "1 of 2 keys are held still",
		},
		{"released, json", func(b *strings.Builder) error { return WriteReleased(b, "json", released[:1]) }, `{"key":["a"],"released":true}` + "\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			err := tt.write(&b)
			if b.String() != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("got %v, and\n%s", err, b.String())
			}
		})
	}
}
