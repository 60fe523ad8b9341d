package auth

import (
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestWhatAPermissionAllows(t *testing.T) {
	item := Resource{Database: "d", Container: "c", Kind: "docs", Item: "1", Key: `["x","y"]`}
	feed := Resource{Database: "d", Container: "c", Kind: "docs", Key: `["x","y"]`}
	all := Resource{Database: "d", Container: "c", Kind: "docs"}
	plan := Resource{Database: "d", Container: "c", Kind: "docs", Plan: true}
	cont := Resource{Database: "d", Container: "c", Kind: "colls"}
	parts := Resource{Database: "d", Container: "c", Kind: "partitions"}
	other := Resource{Database: "d", Container: "other", Kind: "docs", Item: "1", Key: `["x","y"]`}
	another := Resource{Database: "d", Container: "c", Kind: "docs", Key: `["xx","y"]`}
	second := Resource{Database: "d", Container: "c", Kind: "docs", Item: "2"}
	type asked struct {
		action string
		on     Resource
	}
	for _, c := range []struct {
		name string
		p    Permission
		yes  []asked
		no   []asked
	}{
		{
			"read a container",
			Permission{},
			[]asked{
				{ReadMetadata, Resource{Account: true}},
				{ReadMetadata, cont},
				{ReadItem, item},
				{Query, all},
				{ReadChangeFeed, all},
			},
			[]asked{
				{Create, feed}, {Delete, item}, {Manage, cont}, {ReadItem, other}, {Manage, Resource{Account: true}},
			},
		},
		{
			"all of a container",
			Permission{Write: true},
			[]asked{{Create, feed}, {Delete, item}, {Upsert, all}, {Manage, cont}},
			[]asked{
				{Manage, parts},
				{Manage, Resource{Database: "d", Kind: "colls"}},
				{ReadMetadata, Resource{Database: "d"}},
			},
		},
		{
			"all of a key",
			Permission{Write: true, Key: `["x"]`},
			[]asked{{Create, feed}, {ReadItem, item}, {Query, plan}, {ReadMetadata, cont}},
			[]asked{{Query, all}, {Manage, cont}, {Create, another}},
		},
		{
			"all of a number as a key",
			Permission{Write: true, Key: `[1]`},
			[]asked{{Create, Resource{Database: "d", Container: "c", Kind: "docs", Key: `[1]`}}},
			[]asked{{Create, Resource{Database: "d", Container: "c", Kind: "docs", Key: `[12]`}}},
		},
		{
			"all of an item",
			Permission{Write: true, Item: "1"},
			[]asked{{ReadItem, item}, {Replace, item}, {ReadMetadata, cont}},
			[]asked{{Query, feed}, {Query, plan}, {Create, feed}, {Manage, cont}, {Delete, second}},
		},
	} {
		c.p.Database, c.p.Container = "d", "c"
		for _, a := range c.yes {
			if !c.p.allows(a.action, a.on) {
				t.Errorf("%s: %s on %+v is refused", c.name, a.action, a.on)
			}
		}
		for _, a := range c.no {
			if c.p.allows(a.action, a.on) {
				t.Errorf("%s: %s on %+v is allowed", c.name, a.action, a.on)
			}
		}
	}
}

func TestAResourceTokenEndsOnTime(t *testing.T) {
	second := base64.StdEncoding.EncodeToString([]byte("a second key of bytes"))
	reading := base64.StdEncoding.EncodeToString([]byte("a key that only reads"))
	authority := func(keys ...Key) *Authority {
		a, err := New(keys, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := authority(Key{Text: emulatorKey, Write: true}, Key{Text: second, Write: true}, Key{Text: reading})
	from := time.Unix(1_000_000, 0)
	token := a.IssueToken(Permission{
		Database: "d", Container: "c", From: from.Unix(), Until: from.Add(time.Hour).Unix(),
	})
	signature, ok := strings.CutPrefix(token, "type=resource&ver=1&sig=")
	if !ok {
		t.Fatalf("token %q", token)
	}
	for after, want := range map[time.Duration]bool{0: true, time.Hour - time.Second: true, time.Hour: false} {
		who, err := a.checkResourceToken(signature, from.Add(after))
		if (err == nil) != want || who.HasToken() != want {
			t.Errorf("after %v: %v, want it taken: %v", after, err, want)
		}
	}
	// The key of the token may be the second one by now, but not one that only reads.
	if _, err := authority(Key{Text: second, Write: true}, Key{Text: emulatorKey, Write: true}).
		checkResourceToken(signature, from); err != nil {
		t.Errorf("after the keys have changed places: %v", err)
	}
	for _, keys := range [][]Key{{{Text: second, Write: true}}, {{Text: second, Write: true}, {Text: emulatorKey}}} {
		if _, err := authority(keys...).checkResourceToken(signature, from); err == nil {
			t.Errorf("the token is taken by an account with the keys %+v", keys)
		}
	}
	seal, content, _ := strings.Cut(signature, ";")
	for _, bad := range []string{
		"", ";", seal, seal + ";", ";" + content, seal + ";" + content + "x;", content + ";" + seal,
	} {
		if _, err := a.checkResourceToken(bad, from); err == nil {
			t.Errorf("the damaged token %q is taken", bad)
		}
	}
}
