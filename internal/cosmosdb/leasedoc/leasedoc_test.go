package leasedoc_test

import (
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

const prefix = "appacct.documents.azure.com_SnxPAA==_SnxPAOM2VfM="

func TestIDsAreThoseOfDotNet(t *testing.T) {
	if got := leasedoc.Prefix("app", "acct.documents.azure.com", "SnxPAA==", "SnxPAOM2VfM="); got != prefix {
		t.Errorf("Prefix = %q, want %q", got, prefix)
	}
	for _, c := range []struct {
		kind      feed.Kind
		token, id string
	}{
		{feed.KindLease, "0", prefix + "..0"},
		{feed.KindLease, "-FF", prefix + "..-FF"},
		{feed.KindLease, "05C1CFFFFFFFF8-0BF333333333", prefix + "..05C1CFFFFFFFF8-0BF333333333"},
		{feed.KindHost, "pod-7", prefix + ".host.pod-7"},
		{feed.KindHost, `a/b\c?d#e%2F~2F`, prefix + ".host.a~2Fb~5Cc~3Fd~23e~252F~7E2F"},
		{feed.KindInfo, "", prefix + ".info"},
		{feed.KindLock, "", prefix + ".lock"},
		{"control", "", prefix + ".control"},
		{"held", "a.b/c", prefix + ".held.a.b~2Fc"},
	} {
		if got := leasedoc.ID(prefix, c.kind, c.token); got != c.id {
			t.Errorf("ID(%v, %q) = %q, want %q", c.kind, c.token, got, c.id)
		}
		kind, token, ok := leasedoc.KindOf(prefix, c.id)
		if kind != c.kind || token != c.token || !ok {
			t.Errorf("KindOf(%q) = %v, %q, %v, want %v, %q", c.id, kind, token, ok, c.kind, c.token)
		}
	}
}

func TestIDsOfOtherUnitsAreNotOk(t *testing.T) {
	for _, id := range []string{
		"", "app", prefix, prefix + "2..0", "x" + prefix + "..0", prefix + "..", prefix + ".host.",
		prefix + ".host", prefix + ".info.x", prefix + ".lock.", prefix + ".lock.x",
		prefix + ".lease", prefix + ".lease.0", prefix + "info", prefix + ".", prefix + ".control.", prefix +
			".Control", prefix + ".acct_rid..0",
	} {
		if kind, token, ok := leasedoc.KindOf(prefix, id); ok {
			t.Errorf("KindOf(%q) = %v, %q, true, want not ok", id, kind, token)
		}
	}
}

// A second lock beside the first would lock nobody out.
func TestASingleRecordHasOneID(t *testing.T) {
	for _, kind := range []feed.Kind{feed.KindInfo, feed.KindLock} {
		if got, want := leasedoc.ID(prefix, kind, "a"), leasedoc.ID(prefix, kind, ""); got != want {
			t.Errorf("ID(%v, a) = %q, want %q", kind, got, want)
		}
	}
}
