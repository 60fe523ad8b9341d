package leasedoc

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// A unit is identified by its name, and by the account and container that are read: two units with the same name on
// two containers may share a lease container. As in the other processors, the ids of its documents begin with all of
// these parts.

// Unit is a deployment unit, given by the parts of its documents' ids.
type Unit struct {
	Processor                 string
	Host                      string // of the account, as its clients reach it
	DatabaseRID, ContainerRID string
	Database, Container       string // names, used in the ids of Java's older leases
}

// ErrSecondSet is the Err of a lease if the unit has another set of leases under another name of this machine.
var ErrSecondSet = fmt.Errorf("%w: the unit has another set of leases, under another name of this machine: delete "+
	"the one that is not wanted",
	feed.ErrForeignLease)

// Spellings returns the names under which a unit may know its account: the host as .NET writes it and, for this
// machine, its other names. A processor that reaches the account by another of these names must find the existing
// unit. Otherwise that processor would begin a second unit, which handles everything again.
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

// Prefixes returns the possible prefixes of the ids of the unit's documents. The first is the prefix that the .NET
// processor would write here.
func (u Unit) Prefixes() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.DatabaseRID, u.ContainerRID))
	}
	return list
}

// javaPrefixes returns the prefixes of the leases of Java's older processor. That processor uses partition key range
// ids, and names of the database and container instead of resource ids.
func (u Unit) javaPrefixes() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.Database, u.Container))
	}
	return list
}

// Searched returns all prefixes that a listing of the unit must look for.
func (u Unit) Searched() []string { return append(u.Prefixes(), u.javaPrefixes()...) }

// Choose returns the prefix of the unit's documents: that of the first spelling with leases; if there is none, that
// of the first spelling with a marker; if there is none either, the prefix that .NET would write.
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

// Begun reports whether one of the ids belongs to a lease or marker of the unit, so that the unit has its prefix.
func (u Unit) Begun(ids ...string) bool {
	for _, prefix := range u.Prefixes() {
		for _, id := range ids {
			if isOf(prefix, id, feed.KindLease) || isOf(prefix, id, feed.KindInfo) {
				return true
			}
		}
	}
	return false
}

// isOf reports whether an id belongs to a kind of record under a prefix.
func isOf(prefix, id string, want feed.Kind) bool {
	kind, _, ok := KindOf(prefix, id)
	return ok && kind == want
}

// Record reads a document found by a listing; ok is false if the document belongs to another unit. For leases and
// markers under another prefix, Err is set, so an operator sees them and no processor uses them.
func (u Unit) Record(prefix, id string, doc []byte) (record feed.Record, ok bool) {
	if _, _, ok := KindOf(prefix, id); ok {
		return Unmarshal(prefix, doc), true
	}
	others := []struct {
		prefixes []string
		err      error
	}{{u.Prefixes(), ErrSecondSet}, {u.javaPrefixes(), ErrJava}}
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

// IsProcessor reports whether the name of a processor is valid in the ids of its documents: the name must not be
// blank, and must not contain a character that the service refuses in ids, nor U+0000, which ends a text elsewhere.
func IsProcessor(name string) bool {
	return strings.TrimSpace(name) != "" && !strings.ContainsAny(name, "/\\?#\x00")
}
