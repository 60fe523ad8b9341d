package feed_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The head is not known, or was read before the changes, or after them.
func TestALagIsNeverNegative(t *testing.T) {
	for _, c := range []struct{ head, lag int64 }{{0, 0}, {3, 0}, {7, 0}, {9, 2}} {
		b := &feed.Batch{Head: c.head, Changes: []feed.Change{{LSN: 5}, {LSN: 7}}}
		if got := b.Lag(); got != c.lag {
			t.Errorf("a lag of %d behind a head of %d, want %d", got, c.head, c.lag)
		}
	}
	if got := (&feed.Batch{Head: 9}).Lag(); got != 0 {
		t.Errorf("a batch without changes has a lag of %d", got)
	}
}

// A start is compared with the one that the unit's records say, which have neither a zone nor a monotonic clock.
func TestTwoStartsOfTheSameTimeAreEqual(t *testing.T) {
	now := time.Now()
	want := feed.FromTime(time.Unix(0, now.UnixNano()).UTC())
	for name, at := range map[string]time.Time{
		"the time of the clock":     now,
		"in another zone":           now.In(time.FixedZone("there", 3600)),
		"without a monotonic clock": now.Round(0),
	} {
		if got := feed.FromTime(at); got != want {
			t.Errorf("%s: a start of %v, want one that equals %v", name, got, want)
		}
	}
}

// What a handler and an operator see of a lease is what its record says, all of it.
func TestALeaseSaysWhatItsRecordSays(t *testing.T) {
	record := feed.Record{
		ID: "7", Token: "-FF", Range: feed.FullRange(), Owner: "a", Epoch: "e", Mode: feed.AllVersionsAndDeletes,
		Position: feed.Position{Token: "5"}, Attempts: 3, State: feed.StateSplitting, Updated: time.Unix(1000, 0),
		Properties: map[string]string{"a": "b"},
	}
	lease, of := reflect.ValueOf(record.Lease()), reflect.ValueOf(record)
	for i := range lease.NumField() {
		name := lease.Type().Field(i).Name
		got, want := lease.Field(i).Interface(), of.FieldByName(name).Interface()
		if lease.Field(i).IsZero() || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v as the record says", name, got, want)
		}
	}
}

// Each operation has a word, and one of a newer version its number.
func TestEachWriteHasAText(t *testing.T) {
	for op := range feed.WriteOp(math.MaxUint8) {
		if text := op.String(); text == "" || strings.HasPrefix(text, "WriteOp(") != (op > feed.WriteRead) {
			t.Errorf("operation %d has the text %q", uint8(op), text)
		}
	}
	if got := (feed.WriteRead + 1).String(); got != "WriteOp(6)" {
		t.Errorf("the operation after the last one has the text %q", got)
	}
}

// An activity is a label of metrics and a value in JSON.
func TestEachActivityIsAWord(t *testing.T) {
	for _, a := range []feed.Activity{
		feed.ActivityFenced, feed.ActivityReading, feed.ActivityHandling, feed.ActivityStoring, feed.ActivityFailing,
		feed.ActivityWaiting, feed.ActivityEnding,
	} {
		if strings.Trim(string(a), "abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("%q is no word", a)
		}
	}
}

// A value that cannot be in a partition key is refused where the key is made, by its place and its value.
func TestAnImpossibleKeyIsRefusedWhereItIsMade(t *testing.T) {
	type name string
	for _, c := range []struct {
		components []any
		key        feed.PartitionKey
		err        string
	}{
		{[]any{"Oslo"}, `["Oslo"]`, ""},
		{[]any{name("Oslo"), 5, 2.5}, `["Oslo",5,2.5]`, ""},
		{[]any{uint8(5)}, `[5]`, ""},
		{[]any{true, nil, feed.Undefined}, `[true,null,{}]`, ""},
		{nil, "", "has 0 components, want 1 to 3"},
		{[]any{1, 2, 3, 4}, "", "has 4 components, want 1 to 3"},
		{[]any{"a", math.NaN()}, "", "component 2 of the partition key is NaN"},
		{[]any{math.Inf(-1)}, "", "component 1 of the partition key is -Inf"},
		{[]any{"\xff"}, "", `component 1 of the partition key is "\xff", which is not UTF-8`},
		{[]any{[]string{"a"}}, "", "of type []string"},
		{[]any{struct{ City string }{"Oslo"}}, "", "of type struct"},
		{[]any{new(string)}, "", "of type *string"},
		{[]any{func() {}}, "", "of type func()"},
	} {
		key, err := feed.NewKey(c.components...)
		if key != c.key || (err == nil) != (c.err == "") || err != nil && (!errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: %s, %v, want %s, %q", c.components, key, err, c.key, c.err)
		}
	}
}
