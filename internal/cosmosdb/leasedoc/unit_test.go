package leasedoc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// .NET takes the host of the endpoint: small letters, brackets about IPv6, no port. Only
// this machine has several names.
func TestTheHostIsSpelledAsDotNetDoes(t *testing.T) {
	for host, want := range map[string][]string{
		"Acct.Documents.Azure.com": {"acct.documents.azure.com"},
		"10.0.0.7":                 {"10.0.0.7"},
		"2001:DB8::1":              {"[2001:db8::1]"},
		"localhost":                {"localhost", "127.0.0.1", "[::1]"},
		"127.0.0.1":                {"127.0.0.1", "localhost", "[::1]"},
		"::1":                      {"[::1]", "localhost", "127.0.0.1"},
		"127.8.8.8":                {"127.8.8.8", "localhost", "127.0.0.1", "[::1]"},
	} {
		if got := leasedoc.Spellings(host); !slices.Equal(got, want) {
			t.Errorf("Spellings(%s) = %q, want %q", host, got, want)
		}
	}
}

func TestAUnitIsFoundUnderEverySpelling(t *testing.T) {
	u := leasedoc.Unit{
		Processor: "app", Host: "127.0.0.1", DatabaseRID: "AAAAAA==", ContainerRID: "AAAAAAAAAAA=",
		Database: "shop", Container: "orders",
	}
	const (
		address = "app127.0.0.1_AAAAAA==_AAAAAAAAAAA="
		name    = "applocalhost_AAAAAA==_AAAAAAAAAAA="
		java    = "applocalhost_shop_orders"
	)
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{nil, address},
		{[]string{address + "..0", name + "..0"}, address},
		{[]string{name + "..0"}, name},
		{[]string{name + ".info"}, name},
		{[]string{address + ".info", name + "..-FF"}, name},
		{[]string{name + ".host.a", name + ".lock", java + "..0", "other" + name + "..0"}, address},
	} {
		if got := u.Choose(c.ids); got != c.want {
			t.Errorf("Choose(%q) = %s, want %s", c.ids, got, c.want)
		}
	}
	for id, want := range map[string]error{
		address + "..-FF": nil, name + "..-FF": leasedoc.ErrSecondSet, java + "..-FF": leasedoc.ErrJava,
		name + ".info": leasedoc.ErrSecondSet, java + ".info": leasedoc.ErrJava,
	} {
		l, ok := u.Record(address, id, []byte(`{"id":"`+id+`","version":1,"LeaseToken":"-FF","Owner":"a"}`))
		ranged := l.Kind != feed.KindLease || l.Range == feed.FullRange()
		if !ok || !errors.Is(l.Err, want) || l.ID != id || l.Owner != "a" || !ranged {
			t.Errorf("Record(%s) = %+v, %v, want the record with Err %v", id, l, ok, want)
		}
		if !slices.ContainsFunc(u.Searched(), func(prefix string) bool { return strings.HasPrefix(id, prefix+".") }) {
			t.Errorf("Searched() = %q, want a beginning of %s", u.Searched(), id)
		}
	}
	for _, id := range []string{"other..0", name + ".host.a", java + ".host.a", "x" + name + "..0"} {
		if l, ok := u.Record(address, id, []byte(`{"id":"`+id+`"}`)); ok {
			t.Errorf("Record(%s) = %+v, want none", id, l)
		}
	}
}

func TestANameOfAProcessorCanBeInAnID(t *testing.T) {
	for name, want := range map[string]bool{
		"billing": true, "the bills": true, "": false, " \t": false, "a/b": false, `a\b`: false, "a?": false,
		"#a": false, "a\x00b": false,
	} {
		if got := leasedoc.IsProcessor(name); got != want {
			t.Errorf("IsProcessor(%q) = %v, want %v", name, got, want)
		}
	}
}
