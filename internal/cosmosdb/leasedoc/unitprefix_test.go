package leasedoc_test

import (
	"testing"

	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// A prefix may change until a lease or marker of the unit is seen, or until the unit is made with it.
func TestThePrefixOfAUnitChangesUntilTheUnitIsMade(t *testing.T) {
	const (
		address = "app127.0.0.1_AAAAAA==_AAAAAAAAAAA="
		name    = "applocalhost_AAAAAA==_AAAAAAAAAAA="
	)
	type state struct {
		prefix    string
		mayChange bool
	}
	for _, c := range []struct {
		what string
		host string
		do   func(p *leasedoc.UnitPrefix)
		want state
	}{
		{"nothing is known", "127.0.0.1", func(*leasedoc.UnitPrefix) {}, state{address, true}},
		{"no document exists", "127.0.0.1", func(p *leasedoc.UnitPrefix) { p.Learn() }, state{address, true}},
		{
			"an instance is there", "127.0.0.1",
			func(p *leasedoc.UnitPrefix) { p.Learn(name + ".host.a") },
			state{address, true},
		},
		{"a lease is seen", "127.0.0.1", func(p *leasedoc.UnitPrefix) { p.Learn(name + "..0") }, state{name, false}},
		{"a marker is seen", "127.0.0.1", func(p *leasedoc.UnitPrefix) { p.Learn(name + ".info") }, state{name, false}},
		{"a second set is seen", "127.0.0.1", func(p *leasedoc.UnitPrefix) {
			p.Learn(name + "..0")
			p.Learn(address + "..0")
		}, state{name, false}},
		{"it is made here", "127.0.0.1", func(p *leasedoc.UnitPrefix) {
			if kept := p.Keep(); kept != address {
				t.Errorf("kept %s, want %s", kept, address)
			}
			p.Learn(name + "..0")
		}, state{address, false}},
		{
			"a host has one name", "10.0.0.7", func(*leasedoc.UnitPrefix) {},
			state{"app10.0.0.7_AAAAAA==_AAAAAAAAAAA=", false},
		},
	} {
		p := leasedoc.NewUnitPrefix(leasedoc.Unit{
			Processor: "app", Host: c.host, DatabaseRID: "AAAAAA==", ContainerRID: "AAAAAAAAAAA=",
		})
		c.do(p)
		if got := (state{p.String(), p.MayChange()}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}
