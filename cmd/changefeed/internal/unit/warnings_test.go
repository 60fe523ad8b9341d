package unit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/variants"
)

// hostRow is the row of a running instance with a handler; empty if it does not tell.
func hostRow(name, handler string) Row {
	now := time.Now()
	record := feed.Record{
		Kind: feed.KindHost, Token: name + "/1", Owner: name, Epoch: "1", Expiration: time.Minute, Updated: now,
	}
	if handler != "" {
		variants.Show(&record, feed.Variant{Handler: handler, Program: "shop v1", Options: "timeout=1m"}, now)
	}
	r := describe(record, now)
	r.describeInstance(now)
	return r
}

// leaseRow is the row of a lease of an instance; empty if it is free.
func leaseRow(owner string) Row {
	record := feed.Record{Kind: feed.KindLease, Token: "-FF", Owner: owner, Epoch: "1", Updated: time.Now()}
	r := describe(record, time.Now())
	r.Lag, r.Waited = new(int64(0)), new(0.0)
	return r
}

// earlierLife returns a lease as the lease of an owner that has begun again since.
func earlierLife(r Row) Row {
	r.Epoch = "0"
	return r
}

func unitWith(name string, rows ...Row) *Unit {
	u := &Unit{Processor: name, Container: "shop/orders", Rows: rows}
	u.countLeases()
	return u
}

// A unit says what no lease shows: instances that differ, idle instances, and a unit that may have a mistyped name.
func TestAUnitIsWarnedOf(t *testing.T) {
	gone, replaced := hostRow("c", "other.sh"), leaseRow("")
	gone.gone, replaced.record.State = true, feed.StateRetired
	for name, c := range map[string]struct {
		u     *Unit
		other string
		want  string
	}{
		"nothing": {unitWith("mailer", leaseRow("a"), hostRow("a", "mail.sh")), "mailer", ""},
		"differing instances": {
			unitWith("mailer", leaseRow("a"), leaseRow("b"), hostRow("a", "mail.sh"), hostRow("b", "other.sh")),
			"count", "differ: instances differ: a runs mail.sh; b runs other.sh",
		},
		"an instance that has gone": {unitWith("mailer", leaseRow("a"), hostRow("a", "mail.sh"), gone), "count", ""},
		"an older version": {
			unitWith("mailer", leaseRow("a"), leaseRow("b"), hostRow("a", "mail.sh"), hostRow("b", "")), "count", "",
		},
		"idle instances": {
			unitWith("mailer", leaseRow("b"), hostRow("c", "x"), hostRow("a", "x"), hostRow("b", "x")), "count",
			"idle: 2 of 3 instances idle: a c; stop some",
		},
		"a lease of an earlier life": {
			unitWith("mailer", earlierLife(leaseRow("a")), hostRow("a", "x")), "count", "idle: 1 of 1 instance idle: a",
		},
		"a free lease": {
			unitWith("mailer", leaseRow("b"), leaseRow(""), hostRow("a", "x"), hostRow("b", "x")), "count", "",
		},
		"a lease that was replaced": {
			unitWith("mailer", leaseRow("b"), replaced, hostRow("a", "x"), hostRow("b", "x")), "count",
			"idle: 1 of 2 instances idle: a",
		},
		"a mistyped name": {
			unitWith("maler", leaseRow("a"), hostRow("a", "x")), "mailer",
			"alike: unit mailer has a similar name and reads the same container",
		},
	} {
		elsewhere := &Unit{Processor: "mailed", Container: "shop/customers"}
		c.u.warn([]*Unit{c.u, {Processor: c.other, Container: "shop/orders"}, elsewhere})
		var got []string
		for _, w := range c.u.Warnings {
			got = append(got, w.Word+": "+w.Text)
		}
		if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%s: warned of %q, want %q", name, text, c.want)
		}
	}
}

// A slow batch is noted at the lease of the owner who shows it, with the time since.
func TestASlowBatchIsNotedAtItsLease(t *testing.T) {
	slow := hostRow("a", "x")
	now := time.Now()
	variants.ShowSlow(&slow.record, []feed.SlowBatch{
		{Lease: "-FF", Changes: 3, Since: now.Add(-time.Minute), Usual: 10 * time.Millisecond},
		{Lease: "-FF", Changes: 1, Since: now.Add(-time.Second)},
	}, now)
	slow.Silent = 12
	gone := slow
	gone.gone = true
	for name, c := range map[string]struct {
		u    *Unit
		want string
	}{
		"of its owner": {
			unitWith("mailer", leaseRow("a"), slow), "a batch has been in the handler for 1m12s (usually 10ms): 3 changes",
		},
		"of an owner that has gone":     {unitWith("mailer", leaseRow("a"), gone), ""},
		"of a lease of another owner":   {unitWith("mailer", leaseRow("b"), slow), ""},
		"of a lease of an earlier life": {unitWith("mailer", earlierLife(leaseRow("a")), slow), ""},
	} {
		c.u.noteSlow()
		r := c.u.Rows[0]
		if got := strings.Join(r.Notes, "; "); !strings.HasPrefix(got, c.want) || (c.want == "") != (r.InHand == nil) {
			t.Errorf("%s: notes %q, in hand %v, want %q", name, got, r.InHand, c.want)
		}
		if r.InHand != nil && *r.InHand != 72 {
			t.Errorf("%s: in hand for %v, want the longest", name, *r.InHand)
		}
	}
}

// The warnings are below the heading, --fail-on finds them, and JSON has what each instance runs.
func TestWarningsAreShown(t *testing.T) {
	u := unitWith("maler", leaseRow("a"), hostRow("a", "mail.sh"), hostRow("b", "other.sh"), hostRow("c", ""))
	u.warn([]*Unit{{Processor: "mailer", Container: "shop/orders"}})
	var out bytes.Buffer
	if err := WriteTables(&out, "shop/leases", []Unit{*u}, terminal.Of(&out)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{
		"maler on shop/orders", "warning: instances differ: a runs mail.sh; b runs other.sh",
		"warning: 2 of 3 instances idle: b c", "warning: unit mailer has a similar name", "  LEASE",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
		}
	}
	for word, says := range map[string]string{
		WarnDiffer: "maler: instances differ", WarnIdle: "maler: 2 of 3", WarnAlike: "maler: unit mailer has",
	} {
		var f Faults
		if err := f.Set(word); err != nil {
			t.Fatal(err)
		}
		if found := f.Find([]Unit{*u}); !strings.HasPrefix(found, says) {
			t.Errorf("%s: found %q", word, found)
		}
		if found := f.Find([]Unit{*unitWith("mailer", leaseRow("a"), hostRow("a", "x"))}); found != "" {
			t.Errorf("%s in a unit without a warning: found %q", word, found)
		}
	}
	for i, want := range []string{
		`"leases":1,"variant":"` + u.Rows[1].Runs.Hash() + `","handler":"mail.sh","program":"shop v1",` +
			`"options":"timeout=1m"`,
		`"leases":0,`,
		`"leases":0,"variant":null,"handler":null,"program":null,"options":null`,
	} {
		text, err := json.Marshal(u.Rows[i+1].line())
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("instance %d is %s, %v, want %s", i, text, err, want)
		}
	}
	for i, noted := range []bool{true, true, false} {
		if got := strings.Join(u.Rows[i+1].Notes, "; "); strings.Contains(got, "instances differ") != noted {
			t.Errorf("instance %d has the notes %q", i, got)
		}
	}
}
