package unit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/variants"
)

// instanceOf is a running instance with a handler; empty if it does not tell.
func instanceOf(name, handler string) feed.Record {
	record := feed.Record{
		Kind: feed.KindHost, ID: name, Token: name + "/1", Owner: name, Epoch: "1", Expiration: time.Minute,
		Updated: time.Now(),
	}
	if handler != "" {
		variants.Show(&record, feed.Variant{Handler: handler, Program: "shop v1", Options: "timeout=1m"}, time.Now())
	}
	return record
}

// leaseOf is the lease of an instance.
func leaseOf(owner string) feed.Record {
	return feed.Record{
		Kind: feed.KindLease, ID: "doc", Token: "-FF", Range: feed.FullRange(), Owner: owner, Epoch: "1",
		Updated: time.Now(),
	}
}

// unitWith is a unit with records.
func unitWith(t *testing.T, name string, records ...feed.Record) *Unit {
	t.Helper()
	l, err := admin.Open(nil, listing{records: records, now: time.Now()}, admin.Options{}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Of(name, "shop/orders", l)
}

// A unit is warned of another one whose name may be mistyped, if both read one container.
func TestAUnitIsWarnedOfASimilarName(t *testing.T) {
	for name, want := range map[string]string{
		"mailer": "", "count": "", "maler": "unit mailer has a similar name and reads the same container",
	} {
		u, elsewhere := unitWith(t, name, leaseOf("a")), &Unit{Processor: "mailed", Container: "shop/customers"}
		u.findAlike([]*Unit{u, {Processor: "mailer", Container: "shop/orders"}, elsewhere})
		if text := u.warningOf("alike"); !strings.HasPrefix(text, want) || (text == "") != (want == "") {
			t.Errorf("%s: warned of %q, want %q", name, text, want)
		}
	}
}

// The warnings are below the heading, --fail-on finds them, and JSON has what each instance runs.
func TestWarningsAreShown(t *testing.T) {
	u := unitWith(t, "maler", leaseOf("a"), instanceOf("a", "mail.sh"), instanceOf("b", "other.sh"),
		instanceOf("c", ""))
	u.findAlike([]*Unit{{Processor: "mailer", Container: "shop/orders"}})
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
		"differ": "maler: instances differ", "idle": "maler: 2 of 3", "alike": "maler: unit mailer has",
	} {
		var f Faults
		if err := f.Set(word); err != nil {
			t.Fatal(err)
		}
		if found := f.Find([]Unit{*u}); !strings.HasPrefix(found, says) || strings.Count(found, "maler") != 1 {
			t.Errorf("%s: found %q", word, found)
		}
		if found := f.Find([]Unit{*unitWith(t, "mailer", leaseOf("a"), instanceOf("a", "x"))}); found != "" {
			t.Errorf("%s in a unit without a warning: found %q", word, found)
		}
	}
	for i, want := range []string{
		`"variant":"` + u.Rows[0].Runs.Hash() + `","handler":"mail.sh","program":"shop v1",` +
			`"options":"timeout=1m"`,
		`"leases":0,`,
		`"variant":null,"handler":null,"program":null,"options":null`,
	} {
		text, err := json.Marshal(u.Rows[i].line())
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("instance %d is %s, %v, want %s", i, text, err, want)
		}
	}
	for i, noted := range []bool{true, true, false} {
		if got := strings.Join(u.Rows[i].Notes, "; "); strings.Contains(got, "instances differ") != noted {
			t.Errorf("instance %d has the notes %q", i, got)
		}
	}
}
