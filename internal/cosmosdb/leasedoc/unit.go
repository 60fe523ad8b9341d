package leasedoc

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// A unit is known by its name, and by the account and container that it reads: two
// units of the same name on two containers may share a lease container. The names of
// its documents begin with all of these, as the other processors have it.

// Unit is a deployment unit, with the parts of the names of its documents.
type Unit struct {
	Processor                 string
	Host                      string // of the account, as its clients reach it
	DatabaseRID, ContainerRID string
	Database, Container       string // names, which Java's older leases have
}

// ErrSecondSet is the Err of a lease of the unit under another name of this machine.
var ErrSecondSet = fmt.Errorf("%w: the unit has another set of leases, under another name of this machine: delete the one that is not wanted",
	feed.ErrForeignLease)

// Spellings returns the names under which a unit may know its account: the host as .NET
// writes it and, for this machine, its other names. A processor that reaches the
// account by another of these names must find the unit, and not begin a second one that
// handles everything again.
func Spellings(host string) []string {
	host = strings.ToLower(host)
	ip := net.ParseIP(host)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if host != "localhost" && !ip.IsLoopback() {
		return []string{host}
	}
	names := []string{host}
	for _, other := range []string{"localhost", "127.0.0.1", "[::1]"} {
		if other != host {
			names = append(names, other)
		}
	}
	return names
}

// Prefixes returns the beginnings that the unit's documents may have; first that which
// the .NET processor would write here.
func (u Unit) Prefixes() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.DatabaseRID, u.ContainerRID))
	}
	return list
}

// java returns the beginnings of the leases of Java's older processor, which works on
// partition key range ids and names the container in place of resource ids.
func (u Unit) java() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.Database, u.Container))
	}
	return list
}

// Searched returns all beginnings that a listing of the unit must look for.
func (u Unit) Searched() []string { return append(u.Prefixes(), u.java()...) }

// Choose returns the beginning of the unit's documents: that of the first spelling with
// leases or else with a marker; else the one that .NET would write.
func (u Unit) Choose(ids []string) string {
	prefixes := u.Prefixes()
	for _, kind := range []feed.Kind{feed.KindLease, feed.KindInfo} {
		for _, prefix := range prefixes {
			if slices.ContainsFunc(ids, func(id string) bool { return isOf(prefix, id, kind) }) {
				return prefix
			}
		}
	}
	return prefixes[0]
}

// isOf reports whether an id is of a kind of record under a prefix.
func isOf(prefix, id string, want feed.Kind) bool {
	kind, _, ok := KindOf(prefix, id)
	return ok && kind == want
}

// Record reads a document that a listing has found; ok is false for a document of
// another unit. Leases and markers under another prefix come with Err set, so that an
// operator sees them and no processor works on them.
func (u Unit) Record(prefix, id string, doc []byte) (record feed.Record, ok bool) {
	if _, _, ok := KindOf(prefix, id); ok {
		return Unmarshal(prefix, doc), true
	}
	others := []struct {
		prefixes []string
		err      error
	}{{u.Prefixes(), ErrSecondSet}, {u.java(), ErrJava}}
	for _, other := range others {
		for _, p := range other.prefixes {
			if isOf(p, id, feed.KindLease) || isOf(p, id, feed.KindInfo) {
				record := Unmarshal(p, doc)
				record.Err = other.err
				return record, true
			}
		}
	}
	return feed.Record{}, false
}

// IsProcessor reports whether the name of a processor can be in the ids of its documents: it is not blank, and has no
// character that the service refuses there.
func IsProcessor(name string) bool {
	return strings.TrimSpace(name) != "" && !strings.ContainsAny(name, `/\?#`)
}
