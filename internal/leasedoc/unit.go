package leasedoc

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
)

// A Unit is a deployment unit, as the names of its documents have it.
type Unit struct {
	Processor                 string
	Host                      string // of the account, as its clients reach it
	DatabaseRID, ContainerRID string
	Database, Container       string // names, which Java's older leases have
}

// ErrSecondSet is the Err of a lease that the unit has under another name of this machine.
var ErrSecondSet = fmt.Errorf("%w: the unit has another set of leases, under another name of this machine: delete the one that is not wanted",
	changefeed.ErrForeignLease)

// Spellings are the names under which one unit may know its account: the host as .NET
// writes it, and for this machine its other names. A processor that reaches the account
// by another of them must find the unit, not begin a second one.
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

// Prefixes are the beginnings that the unit's documents may have; the first is what the
// .NET processor would write here.
func (u Unit) Prefixes() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.DatabaseRID, u.ContainerRID))
	}
	return list
}

// java are the beginnings that the leases of Java's older processor have, which is on
// partition key range ids and names the container.
func (u Unit) java() (list []string) {
	for _, host := range Spellings(u.Host) {
		list = append(list, Prefix(u.Processor, host, u.Database, u.Container))
	}
	return list
}

// Searched are all beginnings that a listing of the unit must look for.
func (u Unit) Searched() []string { return append(u.Prefixes(), u.java()...) }

// Choose is the beginning that the unit's documents have: that of the first spelling
// under which there are leases, else a marker; else what .NET would write.
func (u Unit) Choose(ids []string) string {
	prefixes := u.Prefixes()
	for _, kind := range []changefeed.Kind{changefeed.KindLease, changefeed.KindInfo} {
		for _, prefix := range prefixes {
			if slices.ContainsFunc(ids, func(id string) bool { return isOf(prefix, id, kind) }) {
				return prefix
			}
		}
	}
	return prefixes[0]
}

// isOf tells whether an id is that of a kind of record under a prefix.
func isOf(prefix, id string, want changefeed.Kind) bool {
	kind, _, ok := KindOf(prefix, id)
	return ok && kind == want
}

// Record reads a document that a listing has found. It is not ok for a document that is
// not of the unit. Leases and markers that are not under its prefix come with Err set.
func (u Unit) Record(prefix, id string, doc []byte) (l changefeed.Lease, ok bool) {
	if _, _, ok := KindOf(prefix, id); ok {
		return Unmarshal(prefix, doc), true
	}
	others := []struct {
		prefixes []string
		err      error
	}{{u.Prefixes(), ErrSecondSet}, {u.java(), ErrJava}}
	for _, other := range others {
		for _, p := range other.prefixes {
			if isOf(p, id, changefeed.KindLease) || isOf(p, id, changefeed.KindInfo) {
				l := Unmarshal(p, doc)
				l.Err = other.err
				return l, true
			}
		}
	}
	return changefeed.Lease{}, false
}
